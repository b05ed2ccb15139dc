"""`token add | list | revoke`: who may call a server over HTTP."""

# What they do is imported when they are called, so that --help and serve start fast.
# ruff: noqa: PLC0415

import sys
from pathlib import Path
from typing import Annotated

import typer

from trt_agent_tools.cli.command import exit_with
from trt_agent_tools.cli.exit_codes import EPILOG
from trt_agent_tools.cli.options import AsJson, StateDir

token_app = typer.Typer(
    name="token",
    help="Make, list and revoke the tokens of callers over HTTP.",
    no_args_is_help=True,
    epilog=EPILOG,
)


@token_app.command(epilog=EPILOG)
def add(
    principal: Annotated[
        str,
        typer.Argument(
            metavar="PRINCIPAL",
            help="Whose it is: tokens of one name see the same builds.",
            show_default=False,
        ),
    ],
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A policy that it may name; the first one holds for builds that name none; may repeat. "
            "Default: the server's own alone.",
            show_default=False,
        ),
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="A short note for people.", show_default=False)
    ] = None,
    state_dir: StateDir = None,
) -> None:
    """Make a token and print it, this once: only its hash is kept."""

    def run() -> int:
        from trt_agent_tools.api.tokens import add_token
        from trt_agent_tools.policy.files import load_named_policy

        for name in policy or ():
            load_named_policy(name)
        made = add_token(_folder(state_dir), principal, policies=policy or [], label=label)
        print(made.text)
        print(
            f"token {made.record.id} of {principal}; it is not shown again. Revoke it with: "
            f"trt-agent-tools token revoke {made.record.id}",
            file=sys.stderr,
        )
        return 0

    exit_with(run)


@token_app.command("list", epilog=EPILOG)
def list_all(as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """List the tokens, the oldest first; what they are is not known any more."""

    def run() -> int:
        import json

        from trt_agent_tools.api.tokens import list_tokens

        records = list_tokens(_folder(state_dir))
        if as_json:
            told = [record.model_dump(mode="json", exclude={"sha256"}) for record in records]
            print(json.dumps(told, indent=1))
            return 0
        if not records:
            print("no tokens", file=sys.stderr)
        for record in records:
            policies = ",".join(record.policies) or "(the server's own)"
            label = f"  {record.label}" if record.label else ""
            print(f"{record.id}  {record.created_at}  {record.principal}  {policies}{label}")
        return 0

    exit_with(run)


@token_app.command(epilog=EPILOG)
def revoke(
    token_id: Annotated[
        str, typer.Argument(metavar="ID", help="From `token list`.", show_default=False)
    ],
    state_dir: StateDir = None,
) -> None:
    """Revoke a token: a server that runs refuses its next request. Its builds go on."""

    def run() -> int:
        from trt_agent_tools.api.tokens import revoke_token

        record = revoke_token(_folder(state_dir), token_id)
        print(f"token {record.id} of {record.principal} is revoked")
        return 0

    exit_with(run)


def _folder(state_dir: Path | None) -> Path:
    from trt_agent_tools.cli.settings import load_settings

    return load_settings(state_dir=state_dir).config().state_dir
