"""`demo`: an agent's view of two real builds, one that succeeds and one that is cancelled.

Everything goes through the MCP server, started as an agent's host would start it. What is printed
was measured or checked in this run.
"""

import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from signal import Signals
from time import perf_counter

import anyio.to_thread
import psutil
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from pydantic import JsonValue

from trt_agent_tools.cli.demo_models import resnet50, transformer
from trt_agent_tools.cli.display import Display, choose_display
from trt_agent_tools.cli.ending_signals import BY_SIGNAL, ending_signals
from trt_agent_tools.cli.exit_codes import ExitCode
from trt_agent_tools.cli.settings import ENV_PREFIX
from trt_agent_tools.cli.tree import tree_lines
from trt_agent_tools.model.duration import format_duration
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.manifest import FileDigest
from trt_agent_tools.model.request import MAX_WAIT_S
from trt_agent_tools.model.snapshot import Snapshot
from trt_agent_tools.model.states import Rung, State
from trt_agent_tools.supervisor.artefact import is_unchanged

BLOCKS = 96
"""How deep the long model is: about 25 s on two cores, nearly all of it in one silent step."""

SILENT_S = 2.0
"""The long build is cancelled once it has been silent for longer than this."""

_RUNGS = {
    Rung.DEQUEUED: "dequeued (it had not begun)",
    Rung.ASK: "ask (a callback came, and TensorRT heard the request)",
    Rung.TERMINATE: "terminate (no callback came in the grace period, so SIGTERM)",
    Rung.KILL: "kill (it outlasted SIGTERM's grace period, so SIGKILL)",
}
_BACKEND = "tensorrt_rtx"
_LOOK_S = 1.0
_LONGEST_BUILD_S = 300.0
_BRIEF_S = 0.1


class DemoError(Exception):
    """Something that the demo promises did not happen."""


class _Agent:
    """The server's tools, each answer as the snapshot that it holds."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def call(self, tool: str, **arguments: JsonValue) -> Snapshot:
        result = await self._client.call_tool(tool, arguments)
        if result.is_error:
            raise DemoError(f"{tool} was refused: {result.structured_content or result.content}")
        return Snapshot.model_validate(result.structured_content)

    async def watch(
        self, snapshot: Snapshot, display: Display, until: Callable[[Snapshot], bool]
    ) -> Snapshot:
        """Poll as an agent does until the build has ended or `until` holds."""
        with anyio.fail_after(_LONGEST_BUILD_S):
            while not (snapshot.ended or until(snapshot)):
                snapshot = await self.call(
                    "get_progress",
                    build_id=snapshot.build_id,
                    wait_s=_LOOK_S,
                    since_seq=snapshot.seq,
                    detail="tree",
                )
                display.update(snapshot)
        return snapshot


async def run_demo(keep: Path | None = None) -> ExitCode:
    """Run the demo in a temporary folder, or in `keep` and leave it; `FAILED` if a promise broke.

    A signal that asks for the end is obeyed once the server and its build are gone, and the temporary
    folder with them.

    Raises:
        Refusal: `keep` is there already and not empty, or cannot be made.
        OSError: the output's reader is gone.
    """
    began = perf_counter()
    asked: list[Signals] = []
    failure: Exception | None = None
    with anyio.open_signal_receiver(*ending_signals()) as signals, _folder(keep) as folder:
        async with anyio.create_task_group() as tasks:

            async def end_on_signal() -> None:
                asked.append(await anext(signals))
                tasks.cancel_scope.cancel()

            tasks.start_soon(end_on_signal)
            failure = await _failure(lambda: _both_builds(folder))
            tasks.cancel_scope.cancel()
        if asked:
            return BY_SIGNAL[asked[0]]
        if isinstance(failure, DemoError | TimeoutError):
            _show(f"demo failed: {str(failure) or 'a build took too long'}")
            _show(_server_log(folder).read_text(errors="replace")[-4000:])
            return ExitCode.FAILED
        if failure:
            raise failure
    _show(f"done in {format_duration(perf_counter() - began)}")
    _show(f"files are in {folder}" if keep else "the temporary folder is removed")
    return ExitCode.OK


async def _failure(run: Callable[[], Awaitable[None]]) -> Exception | None:
    """Return what `run` raises of the failures that are expected: a task group would wrap it."""
    try:
        await run()
    except (DemoError, OSError) as error:
        return error
    return None


def _server_log(folder: Path) -> Path:
    return folder / "server.log"


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="trt-agent-tools-demo-") as name:
            yield Path(name)
        return
    try:
        keep.mkdir(parents=True, exist_ok=True)
        used = any(keep.iterdir())
    except OSError as error:
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT, f"--keep: {error}", "Name another folder."
        ) from error
    if used:
        raise Refusal(ErrorCode.INVALID_ARGUMENT, f"--keep: {keep} is not empty", "Name a new one.")
    yield keep.absolute()


async def _both_builds(folder: Path) -> None:
    models = folder / "models"
    state = folder / "state"
    models.mkdir()
    short, long = models / "resnet50.onnx", models / "transformer.onnx"
    _show("1. Two ONNX files with random weights")
    await anyio.to_thread.run_sync(resnet50, short)
    _show(f"  {short.name}: ResNet-50's topology, {_megabytes(short)}")
    await anyio.to_thread.run_sync(lambda: transformer(long, blocks=BLOCKS))
    _show(f"  {long.name}: {BLOCKS} blocks, {_megabytes(long)}")
    server = StdioServerParameters(
        command=sys.executable,
        args=[
            *("-m", "trt_agent_tools", "serve", "--embedded"),
            *("--root", str(models), "--state-dir", str(state)),
        ],
        env={k: v for k, v in os.environ.items() if not k.startswith(ENV_PREFIX)},
    )
    began = perf_counter()

    async def build_both(client: Client) -> None:
        tools = (await client.list_tools()).tools
        _show(f"2. The MCP server: ready in {perf_counter() - began:.1f} s, {len(tools)} tools")
        agent = _Agent(client)
        _show("3. A build that succeeds")
        await _succeeds(agent, short)
        _show("4. A build that is cancelled inside a step without callbacks")
        await _is_cancelled(agent, long)

    with _server_log(folder).open("w") as errors:
        async with Client(stdio_client(server, errlog=errors)) as client:
            failure = await _failure(lambda: build_both(client))
    if failure:
        raise failure


async def _succeeds(agent: _Agent, model: Path) -> None:
    snapshot = await _start(agent, model)
    with closing(_display()) as display:
        final = await agent.watch(snapshot, display, lambda _: False)
    if final.state is not State.SUCCEEDED or final.result is None:
        raise DemoError(final.summary)
    _show("  " + final.summary)
    for line in tree_lines(final.phases or [], shortest_s=_BRIEF_S):
        _show("    " + line)
    engine = Path(final.result.engine)
    _show(f"  engine  {engine.name}, {_megabytes(engine)}")
    _show(f"  sha256  {final.result.sha256}")
    told = FileDigest(
        path=final.result.engine, bytes=final.result.bytes, sha256=final.result.sha256
    )
    if not await anyio.to_thread.run_sync(is_unchanged, engine, told):
        raise DemoError("the engine file is not the one that was told of")
    _show("          read back from the file: the same")


async def _is_cancelled(agent: _Agent, model: Path) -> None:
    before = set(model.parent.iterdir())
    snapshot = await _start(agent, model)
    with closing(_display()) as display:
        snapshot = await agent.watch(snapshot, display, lambda s: (s.quiet_s or 0) > SILENT_S)
        display.say("  " + snapshot.summary)
    if snapshot.ended:
        raise DemoError(f"no silent step was seen: {snapshot.summary}")
    processes = _worker_processes()
    if not processes:
        raise DemoError("the build's process was not found")
    asked = perf_counter()
    final = await agent.call(
        "cancel_build", build_id=snapshot.build_id, reason="the demo asks for it", wait_s=MAX_WAIT_S
    )
    took = perf_counter() - asked
    alive = [process.pid for process in processes if _runs(process)]
    if final.state is not State.CANCELLED or final.ended_by is None:
        raise DemoError(final.summary)
    _show("  " + final.summary)
    _show(f"  cancel_build -> gone after {took:.2f} s, ended by: {_RUNGS[final.ended_by]}")
    if alive:
        raise DemoError(f"still running: {alive}")
    _show(f"  process {', '.join(str(process.pid) for process in processes)}: gone")
    left = sorted(path.name for path in set(model.parent.iterdir()) - before)
    if left:
        raise DemoError(f"files were left: {left}")
    _show("  files left behind: none")


async def _start(agent: _Agent, model: Path) -> Snapshot:
    began = perf_counter()
    snapshot = await agent.call("start_build", model=str(model), backend=_BACKEND)
    took = perf_counter() - began
    _show(f"  start_build {model.name} -> {snapshot.build_id} after {took:.2f} s")
    return snapshot


class _Summaries(Display):
    """The one line that an agent reads, at most one every `_LOOK_S` and none twice."""

    def __init__(self) -> None:
        self._shown_at = -_LOOK_S
        self._last = ""

    def update(self, snapshot: Snapshot) -> None:
        """Print the summary if the last one is old enough."""
        if snapshot.elapsed_s - self._shown_at >= _LOOK_S and not snapshot.ended:
            self._shown_at = snapshot.elapsed_s
            self.say("  " + snapshot.summary)

    def say(self, text: str) -> None:
        """Print `text` unless it was printed just now."""
        if text != self._last:
            self._last = text
            _show(text)

    def finish(self, final: Snapshot) -> None:
        """Print the last summary."""
        self.say("  " + final.summary)

    def close(self) -> None:
        """Do nothing: nothing is held."""


def _display() -> Display:
    return choose_display(as_json=False) if sys.stdout.isatty() else _Summaries()


def _worker_processes() -> list[psutil.Process]:
    """Return the descendants of this process's children: of the server, which alone is one."""
    servers = psutil.Process().children()
    return [worker for server in servers for worker in server.children(recursive=True)]


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _megabytes(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"


def _show(text: str) -> None:
    print(text, flush=True)
