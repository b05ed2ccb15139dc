"""The commands. Each only reads its arguments; what it does is imported when it is called."""

# Imports stand where they are needed so that --help and serve start fast; the arguments of commands
# are typer's.
# ruff: noqa: PLC0415

import io
import platform
import sys
from pathlib import Path
from typing import Annotated

import typer

from trt_agent_tools import __version__
from trt_agent_tools.cli.build_commands import add_build_commands
from trt_agent_tools.cli.cache import cache_app
from trt_agent_tools.cli.command import exit_with
from trt_agent_tools.cli.exit_codes import EPILOG
from trt_agent_tools.cli.inspection import inspect
from trt_agent_tools.cli.options import (
    AllowPlugins,
    AsJson,
    BuildRoots,
    Embedded,
    EnableReplay,
    EngineCache,
    EngineCacheSize,
    Policy,
    StateDir,
)
from trt_agent_tools.cli.policy import policy_app
from trt_agent_tools.cli.serve import serve
from trt_agent_tools.cli.supervise import supervise
from trt_agent_tools.cli.token import token_app

app = typer.Typer(
    name="trt-agent-tools",
    help="Start, watch, stop and verify TensorRT engine builds: an MCP server and a command line.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(policy_app)
app.add_typer(token_app)
app.add_typer(cache_app)
app.command(hidden=True)(supervise)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"trt-agent-tools {__version__} (Python {platform.python_version()})")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Start, watch, stop and verify TensorRT engine builds: an MCP server and a command line."""


app.command(epilog=EPILOG)(serve)


@app.command(epilog=EPILOG)
def build(
    model: Annotated[Path, typer.Argument(help="The ONNX file.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The engine file. Default: beside the model, named after it.",
            show_default=False,
        ),
    ] = None,
    backend: Annotated[str, typer.Option(help="auto, tensorrt, tensorrt_rtx or replay.")] = "auto",
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A build option by its own name, the value in JSON or as text, such as "
            "builder_optimization_level=2 or flags='[\"TF32\"]'; may repeat.",
            show_default=False,
        ),
    ] = None,
    profile: Annotated[
        list[str] | None,
        typer.Option(
            metavar="INPUT=MIN:OPT:MAX",
            help="The shapes of a dynamic input, such as x=1x3x224x224:4x3x224x224:8x3x224x224; "
            "may repeat, once for each input.",
            show_default=False,
        ),
    ] = None,
    options_file: Annotated[
        Path | None,
        typer.Option(help="Build options as a JSON object in a file.", show_default=False),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RULE=VALUE",
            help="A limit of this build, tighter than the policy's, such as build_time=20m, "
            "host_memory=16GiB or 'phase_time:Timing tactics=5m'; may repeat.",
            show_default=False,
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an engine that is there already.")
    ] = False,
    no_reuse: Annotated[
        bool,
        typer.Option("--no-reuse", help="Build, even if the engine of an identical build is kept."),
    ] = False,
    label: Annotated[
        str | None, typer.Option(help="A short name for people.", show_default=False)
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a snapshot as one JSON line per change.")
    ] = False,
    state_dir: StateDir = None,
    policy: Policy = None,
    root: BuildRoots = None,
    enable_replay: EnableReplay = None,
    allow_plugin: AllowPlugins = None,
    embedded: Embedded = None,
    engine_cache: EngineCache = None,
    engine_cache_size: EngineCacheSize = None,
) -> None:
    """Build an engine from an ONNX file and show it while it builds.

    Ctrl-C asks the build to end, a second one kills it, a third leaves. The command ends when no process
    of the build is left. If the command itself is killed, the build goes on, unless it is embedded.
    """

    def run() -> int:
        from functools import partial

        import anyio

        from trt_agent_tools.cli.build import run_build
        from trt_agent_tools.cli.display import choose_display
        from trt_agent_tools.cli.request import folders_of, make_request
        from trt_agent_tools.cli.settings import load_settings, make_state_dir

        settings = load_settings(
            state_dir=state_dir,
            policy=policy,
            root=root,
            enable_replay=enable_replay,
            allow_plugin=allow_plugin,
            embedded=embedded,
            engine_cache=engine_cache,
            engine_cache_size=engine_cache_size,
        )
        request = make_request(
            model,
            output=output,
            backend=backend,
            options=option or (),
            profiles=profile or (),
            options_file=options_file,
            limits=limit or (),
            overwrite=overwrite,
            reuse=not no_reuse,
            label=label,
        )
        config = settings.config(*folders_of(request))
        make_state_dir(config.state_dir)
        display = choose_display(as_json=as_json)
        start = partial(run_build, request, config, display, embedded=settings.embedded)
        return anyio.run(start)

    exit_with(run)


app.command(epilog=EPILOG)(inspect)
add_build_commands(app)


@app.command(epilog=EPILOG)
def doctor(
    as_json: AsJson = False,
    state_dir: StateDir = None,
    policy: Policy = None,
) -> None:
    """Tell what is installed, which backends, devices and policies work, and why others do not."""

    def run() -> int:
        from trt_agent_tools.cli.doctor import run_doctor
        from trt_agent_tools.cli.settings import load_settings

        config = load_settings(state_dir=state_dir, policy=policy).config()
        return run_doctor(config, as_json=as_json)

    exit_with(run)


@app.command(epilog=EPILOG)
def errors(
    code: Annotated[
        str | None,
        typer.Argument(metavar="CODE", help="Only this one.", show_default=False),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the page docs/errors.md.")
    ] = False,
) -> None:
    """Tell what error codes mean: when each comes, what to do, and whether to try again."""

    def run() -> int:
        from trt_agent_tools.cli.errors import show_errors

        return show_errors(code, markdown=markdown)

    exit_with(run)


@app.command(epilog=EPILOG)
def demo(
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Leave the files in this folder, a new one.", show_default=False
        ),
    ] = None,
) -> None:
    """Build a ResNet-50-shaped model through the MCP server, then cancel a long build.

    Takes about a minute, needs no GPU, and leaves nothing behind.
    """

    def run() -> int:
        import anyio

        from trt_agent_tools.cli.demo import run_demo

        return anyio.run(run_demo, keep)

    exit_with(run)


def main() -> None:
    """Run the command line and exit with an `ExitCode`."""
    # A name that the terminal's encoding lacks must not end a build.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app()
