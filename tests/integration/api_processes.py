"""Real supervisor processes, and real front ends in processes of their own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import psutil

from tests.conftest import processes_of_this_run
from trt_agent_tools.api.attach import ask
from trt_agent_tools.api.messages import Hello
from trt_agent_tools.model.request import FrontEnd
from trt_agent_tools.supervisor.config import SupervisorConfig

POLL_S = 0.02
"""Between looks at what another process does: it tells nobody. Every loop has a deadline."""

FRONT_END = """
import json, sys
from pathlib import Path
import anyio
from trt_agent_tools.api.attach import ask, attach
from trt_agent_tools.model.errors import Refusal
from trt_agent_tools.model.request import FrontEnd, StartRequest
from trt_agent_tools.supervisor.config import SupervisorConfig

def say(**words):
    print(json.dumps(words), flush=True)

async def main():
    state, root, request = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    config = SupervisorConfig(state, (Path(root),), enable_replay=True)
    say(ready=True)
    await anyio.to_thread.run_sync(sys.stdin.readline)
    try:
        async with attach(config, FrontEnd(roots=[root], enable_replay=True)) as service:
            build = None
            if request:
                build = (await service.start(StartRequest.model_validate_json(request))).build_id
            hello = await ask(state)
            say(host=hello.pid, build=build)
            await anyio.to_thread.run_sync(sys.stdin.readline)
    except Refusal as refusal:
        say(code=refusal.info.code.value, message=refusal.info.message)

anyio.run(main)
"""
"""Attaches when a line comes, says what it found, and stays until another line or the end of stdin."""


class FrontEndProcess:
    """A front end that can be killed."""

    def __init__(self, state: Path, root: Path, request: str = "") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", FRONT_END, str(state), str(root), request],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.pid = self._process.pid

    async def read(self) -> dict[str, object]:
        """Return the next thing that it says."""
        assert self._process.stdout
        with anyio.fail_after(40):
            line = await anyio.to_thread.run_sync(self._process.stdout.readline)
        assert line, "the front end ended without a word"
        said = json.loads(line)
        assert isinstance(said, dict)
        return said

    def go_on(self) -> None:
        """Let it attach, or leave."""
        assert self._process.stdin
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    async def attached(self) -> dict[str, object]:
        """Let it attach and return what it found."""
        assert await self.read() == {"ready": True}
        self.go_on()
        return await self.read()

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Leave nothing of it."""
        self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                with suppress(BrokenPipeError):
                    stream.close()


@dataclass
class Hosts:
    """The supervisors of one state folder, and its front ends; `close` ends all of them."""

    state: Path
    root: Path
    front_ends: list[FrontEndProcess] = field(default_factory=list)
    started: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    @property
    def config(self) -> SupervisorConfig:
        return SupervisorConfig(self.state, (self.root,), enable_replay=True)

    @property
    def allowed(self) -> FrontEnd:
        return FrontEnd(roots=[str(self.root)], enable_replay=True)

    def front_end(self, request: str = "") -> FrontEndProcess:
        """Start a front end; it waits to be told to attach."""
        front_end = FrontEndProcess(self.state, self.root, request)
        self.front_ends.append(front_end)
        return front_end

    def supervise(self, *options: str, version: str | None = None) -> "subprocess.Popen[bytes]":
        """Start a host process by hand; with `version` it believes to be of that version."""
        pretend = f"trt_agent_tools.__version__ = {version!r}; " if version else ""
        code = (
            f"import trt_agent_tools; {pretend}"
            "from trt_agent_tools.cli.main import main; main()  # supervise"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", code, "supervise", "--state-dir", str(self.state), *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    async def answering(self, *, not_pid: int | None = None) -> Hello:
        """Return the hello of a host, once there is one, other than `not_pid`."""
        with anyio.fail_after(15):
            while True:
                hello = await ask(self.state)
                if hello and hello.pid != not_pid and not hello.stopping:
                    return hello
                await anyio.sleep(POLL_S)

    def alive(self) -> list[psutil.Process]:
        """Return the host processes of this folder."""
        return [p for p in processes_of_this_run() if self._is_host(p)]

    def _is_host(self, process: psutil.Process) -> bool:
        with suppress(psutil.Error):
            line = process.cmdline()
            return "supervise" in line and str(self.state) in line
        return False

    def close(self) -> None:
        for front_end in self.front_ends:
            front_end.close()
        for process in self.alive():
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGTERM)
        _, left = psutil.wait_procs(self.alive(), timeout=10)
        for process in left:
            process.kill()
        for started in self.started:
            started.wait(10)
            if started.stdout:
                started.stdout.close()
        assert not left, f"hosts that did not end: {left}"


def hosts_of(state: Path, root: Path) -> Iterator[Hosts]:
    """Give the hosts of a state folder and leave none."""
    hosts = Hosts(state, root)
    try:
        yield hosts
    finally:
        hosts.close()


async def exit_of(pid: int, *, within_s: float = 10) -> None:
    """Return when a process has ended, whoever's child it is."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        with anyio.fail_after(within_s):
            await anyio.wait_readable(descriptor)
    finally:
        os.close(descriptor)
