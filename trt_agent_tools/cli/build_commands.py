"""The commands over builds that are there already, their supervisor, and their engines."""

# Imports stand where they are needed so that --help and serve start fast.
# ruff: noqa: PLC0415

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trt_agent_tools.cli.command import exit_with
from trt_agent_tools.cli.exit_codes import EPILOG
from trt_agent_tools.cli.options import AsJson, BuildId, Embedded, StateDir
from trt_agent_tools.model.events import Severity
from trt_agent_tools.model.states import State

if TYPE_CHECKING:
    from trt_agent_tools.model.service import BuildService


def add_build_commands(app: typer.Typer) -> None:
    """Add the commands to `app`, in the order in which the help shows them."""
    app.command("list", epilog=EPILOG)(list_builds)
    for command in (watch, cancel, log, stop, verify):
        app.command(epilog=EPILOG)(command)


def list_builds(
    state: Annotated[
        State | None, typer.Option(help="Only builds in this state.", show_default=False)
    ] = None,
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="Only builds of it.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="At most so many.")] = 20,
    as_json: AsJson = False,
    state_dir: StateDir = None,
    embedded: Embedded = None,
) -> None:
    """List builds, the newest first: those that run, and those that have ended."""

    async def show(service: "BuildService") -> int:
        from trt_agent_tools.cli.known_builds import show_list

        return await show_list(service, session, state, limit, as_json=as_json)

    _with_service(show, state_dir, embedded=embedded)


def watch(
    build_id: BuildId,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a snapshot as one JSON line per change.")
    ] = False,
    state_dir: StateDir = None,
    embedded: Embedded = None,
) -> None:
    """Show a build until its end, as `build` does, with the same exit status.

    Ctrl-C leaves; the build goes on.
    """

    async def show(service: "BuildService") -> int:
        from trt_agent_tools.cli.display import choose_display
        from trt_agent_tools.cli.known_builds import watch_build

        return await watch_build(service, build_id, choose_display(as_json=as_json))

    _with_service(show, state_dir, embedded=embedded)


def cancel(
    build_id: BuildId,
    reason: Annotated[
        str | None, typer.Option(help="Kept with the build.", show_default=False)
    ] = None,
    kill: Annotated[
        bool, typer.Option("--kill", help="Begin with SIGKILL: no grace period.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Until every process of the build is gone.")
    ] = False,
    state_dir: StateDir = None,
    embedded: Embedded = None,
) -> None:
    """Ask for a build's end: the builder first, then SIGTERM, then SIGKILL.

    A build that has ended stays as it is.
    """

    async def end(service: "BuildService") -> int:
        from trt_agent_tools.cli.known_builds import cancel_build

        return await cancel_build(service, build_id, reason, at_once=kill, wait=wait)

    _with_service(end, state_dir, embedded=embedded)


def log(
    build_id: BuildId,
    tail: Annotated[int, typer.Option(min=1, max=1000, help="How many lines of its end.")] = 50,
    min_severity: Annotated[
        Severity | None,
        typer.Option(
            help="Leave out milder lines; those without a severity stay.", show_default=False
        ),
    ] = None,
    state_dir: StateDir = None,
    embedded: Embedded = None,
) -> None:
    """Print the end of a build's log. The text comes from the model and the library."""

    async def show(service: "BuildService") -> int:
        from trt_agent_tools.cli.known_builds import show_log

        return await show_log(service, build_id, tail, min_severity)

    _with_service(show, state_dir, embedded=embedded)


def stop(
    force: Annotated[
        bool, typer.Option("--force", help="End its builds too, instead of refusing.")
    ] = False,
    state_dir: StateDir = None,
) -> None:
    """End the supervisor of the state folder. Refused while builds wait or run."""

    def run() -> int:
        import anyio

        from trt_agent_tools.cli.settings import load_settings
        from trt_agent_tools.cli.stop import stop_supervisor

        config = load_settings(state_dir=state_dir).config()
        return anyio.run(stop_supervisor, config.state_dir, force)

    exit_with(run)


def verify(
    engine: Annotated[Path, typer.Argument(help="The engine file.", show_default=False)],
) -> None:
    """Hash an engine again and compare with ENGINE.json; so too the model and its sidecars, if there."""

    def run() -> int:
        from trt_agent_tools.cli.verify import verify_engine

        return verify_engine(engine)

    exit_with(run)


def _with_service(
    call: Callable[["BuildService"], Awaitable[int]],
    state_dir: Path | None,
    *,
    embedded: bool | None,
) -> None:
    def run() -> int:
        import anyio

        from trt_agent_tools.cli.service import open_service
        from trt_agent_tools.cli.settings import load_settings, make_state_dir

        settings = load_settings(state_dir=state_dir, embedded=embedded)
        config = settings.config()
        make_state_dir(config.state_dir)

        async def enter() -> int:
            async with open_service(config, embedded=settings.embedded) as service:
                return await call(service)

        return anyio.run(enter)

    exit_with(run)
