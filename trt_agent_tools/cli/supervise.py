"""`supervise`: the command that front ends start as the supervisor of a state folder."""

# What it does is imported when it is called, so that --help and serve start fast.
# ruff: noqa: PLC0415

import sys
from pathlib import Path
from typing import Annotated

import typer

from trt_agent_tools.cli.command import exit_with
from trt_agent_tools.cli.options import EngineCache, EngineCacheSize


def supervise(
    state_dir: Annotated[Path | None, typer.Option()] = None,
    policy: Annotated[str | None, typer.Option()] = None,
    engine_cache: EngineCache = None,
    engine_cache_size: EngineCacheSize = None,
    idle_s: Annotated[
        float,
        typer.Option(
            min=0.0,
            envvar="TRT_AGENT_TOOLS_IDLE_S",
            help="End after so many seconds without builds and front ends.",
        ),
    ] = 600.0,
) -> None:
    """Be the supervisor of a state folder; front ends start it when there is none."""

    def run() -> int:
        from trt_agent_tools.api.supervise import ALREADY_RUNNING
        from trt_agent_tools.api.supervise import supervise as be_supervisor
        from trt_agent_tools.cli.settings import load_settings
        from trt_agent_tools.model.errors import ErrorCode, Refusal

        config = load_settings(
            state_dir=state_dir,
            policy=policy,
            engine_cache=engine_cache,
            engine_cache_size=engine_cache_size,
        ).config()
        try:
            status = be_supervisor(config, idle_s=idle_s)
        except OSError as error:
            raise Refusal(
                ErrorCode.INVALID_ARGUMENT,
                f"the state folder cannot be used: {error}",
                "Clear what is in the way, or give another one with --state-dir.",
            ) from error
        if status == ALREADY_RUNNING:
            print(f"another supervisor holds {config.state_dir}", file=sys.stderr)
        return status

    exit_with(run)
