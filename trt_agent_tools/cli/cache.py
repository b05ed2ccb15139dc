"""`cache show | clear`: the engines that are kept for reuse."""

# What they do is imported when they are called, so that --help and serve start fast.
# ruff: noqa: PLC0415

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from trt_agent_tools.cli.command import exit_with
from trt_agent_tools.cli.exit_codes import EPILOG
from trt_agent_tools.cli.options import AsJson, EngineCache, StateDir

if TYPE_CHECKING:
    from trt_agent_tools.supervisor.config import EngineCacheConfig

cache_app = typer.Typer(
    name="cache",
    help="Show and clear the engines that are kept for reuse.",
    no_args_is_help=True,
    epilog=EPILOG,
)


@cache_app.command(epilog=EPILOG)
def show(
    as_json: AsJson = False, state_dir: StateDir = None, engine_cache: EngineCache = None
) -> None:
    """List the kept engines, the most recently used first."""

    def run() -> int:
        from trt_agent_tools.cli.kept_engines import show_cache

        return show_cache(_config(state_dir, engine_cache), as_json=as_json)

    exit_with(run)


@cache_app.command(epilog=EPILOG)
def clear(state_dir: StateDir = None, engine_cache: EngineCache = None) -> None:
    """Keep none of them any more. Engines that builds have written stay where they are."""

    def run() -> int:
        from trt_agent_tools.cli.kept_engines import clear_cache

        return clear_cache(_config(state_dir, engine_cache))

    exit_with(run)


def _config(state_dir: Path | None, engine_cache: Path | None) -> "EngineCacheConfig":
    from trt_agent_tools.cli.settings import load_settings

    config = load_settings(state_dir=state_dir, engine_cache=engine_cache).config().engine_cache
    assert config is not None  # noqa: S101  (for mypy: the settings always name a place)
    return config
