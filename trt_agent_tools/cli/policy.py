"""`policy`: list, show, check and replay policies, and print the schema of their files."""

# Imports stand where they are needed so that --help starts fast; the arguments are typer's.
# ruff: noqa: PLC0415

from pathlib import Path
from typing import Annotated

import typer

from trt_agent_tools.cli.command import exit_with
from trt_agent_tools.cli.exit_codes import EPILOG, ExitCode

policy_app = typer.Typer(
    name="policy",
    help="See, check and try the policies that bound builds.",
    epilog=EPILOG,
    no_args_is_help=True,
)

NameOrFile = Annotated[
    str,
    typer.Argument(
        metavar="NAME|FILE",
        help="A policy's name, or a path that ends in .toml.",
        show_default=False,
    ),
]


@policy_app.command("list", epilog=EPILOG)
def list_() -> None:
    """List the policies that a name stands for: where each is from and what it is for."""

    def run() -> int:
        from trt_agent_tools.cli.known import known_lines

        for line in known_lines():
            print(line)
        return ExitCode.OK

    exit_with(run)


@policy_app.command(epilog=EPILOG)
def show(policy: NameOrFile) -> None:
    """Print all that holds under a policy, defaults included, as a policy file of its own."""

    def run() -> int:
        from trt_agent_tools.cli.policy_text import policy_toml
        from trt_agent_tools.policy.files import load_policy

        for line in policy_toml(load_policy(policy)):
            print(line)
        return ExitCode.OK

    exit_with(run)


@policy_app.command(epilog=EPILOG)
def check(policy: NameOrFile) -> None:
    """Tell whether a policy is valid: which rules are on, or which line is wrong and why."""

    def run() -> int:
        import sys

        from trt_agent_tools.cli.policy_text import check_lines, problem_lines
        from trt_agent_tools.model.errors import Refusal
        from trt_agent_tools.policy.files import load_policy

        try:
            loaded = load_policy(policy)
        except Refusal as refusal:
            problems = list(problem_lines(refusal.info))
            if not problems:
                raise
            for line in problems:
                print(line, file=sys.stderr)
            return ExitCode.USAGE
        for line in check_lines(loaded):
            print(line)
        return ExitCode.OK

    exit_with(run)


@policy_app.command(epilog=EPILOG)
def schema() -> None:
    """Print the JSON Schema of policy files, from which editors complete and check them."""

    def run() -> int:
        import json

        from trt_agent_tools.policy.schema import policy_schema

        print(json.dumps(policy_schema(), indent=2))
        return ExitCode.OK

    exit_with(run)


@policy_app.command(epilog=EPILOG)
def replay(
    policy: NameOrFile,
    events: Annotated[
        Path,
        typer.Argument(
            metavar="EVENTS",
            help="A recorded build: the events.jsonl in its folder under the state folder.",
            show_default=False,
        ),
    ],
    interval: Annotated[
        str, typer.Option(metavar="DURATION", help="Time between two evaluations.")
    ] = "250ms",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Tell what a policy would have done to a recorded build, and when.

    Time comes from the recording: an hour is replayed in about a second.
    """

    def run() -> int:
        from trt_agent_tools.cli.timeline import as_json_text, interval_s, timeline_lines
        from trt_agent_tools.policy.files import load_policy
        from trt_agent_tools.policy.replay import read_recording, replay

        every = interval_s(interval)
        timeline = replay(load_policy(policy), read_recording(events), interval_s=every)
        if as_json:
            print(as_json_text(timeline))
        else:
            for line in timeline_lines(timeline):
                print(line)
        return ExitCode.OK

    exit_with(run)
