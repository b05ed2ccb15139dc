"""The test's side of `crash_host`: hosts that are told what to do, listened to, and killed."""

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.faults.crash_host import HostOrder

ANSWER_S = 60.0
"""How long a host may be silent; one that is alive and well takes a second for a build."""

SYNCS = "fdatasync,fsync"
WRITES = "pwrite"
FILES = "link,linkat,rename,renameat,unlink,unlinkat,fsync"


def compile_interposer(folder: Path) -> Path:
    """Return the shared object made of interposer.c."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler, "a C compiler is needed to make processes die at a chosen call"
    made = folder / "interposer.so"
    source = Path(__file__).with_name("interposer.c")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", str(made), str(source), "-ldl"], check=True, timeout=60
    )
    return made


class CrashHost:
    """Gives orders to hosts, one at a time, and reads what they acknowledge."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._buffer = b""
        self._pid = 0
        self.said: list[str] = []
        """What the host of the last order acknowledged."""

    def begin(self, order: HostOrder) -> None:
        """Start a host."""
        assert self._process.stdin
        if self._pid:
            # Of a test that failed: this one is not to hear of it.
            with suppress(ProcessLookupError, FileNotFoundError):
                self.kill(workers=True)
            self.gone()
        self.said = []
        self._process.stdin.write(order.model_dump_json().encode() + b"\n")
        self._process.stdin.flush()
        self._pid = int(self._line().removeprefix("host "))

    def until(self, *parts: str) -> str:
        """Return the first line from now on that has all of `parts`."""
        while True:
            line = self._line()
            if line.startswith("gone"):
                self._pid = 0
            assert self._pid, f"the host ended before {parts}: {self.said}"
            self.said.append(line)
            if all(part in line for part in parts):
                return line

    def workers(self) -> list[int]:
        """Return the pids of the host's children."""
        children = Path(f"/proc/{self._pid}/task/{self._pid}/children")
        return [int(pid) for pid in children.read_text().split()]

    def kill(self, *, host: bool = True, workers: bool = False) -> None:
        """SIGKILL the host, its workers, or both at once."""
        doomed = self.workers() if workers else []
        if host:
            os.kill(self._pid, signal.SIGKILL)
        for pid in doomed:
            # A worker may have died with its host already.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def gone(self) -> int:
        """Return the host's exit status once it has ended."""
        while not (line := self._line()).startswith("gone"):
            self.said.append(line)
        self._pid = 0
        return int(line.removeprefix("gone "))

    def _line(self) -> str:
        assert self._process.stdout
        deadline = time.monotonic() + ANSWER_S
        while b"\n" not in self._buffer:
            ready, _, _ = select.select(
                [self._process.stdout], [], [], max(0, deadline - time.monotonic())
            )
            assert ready, f"the host is silent after {self.said}"
            data = os.read(self._process.stdout.fileno(), 65536)
            assert data, "the hosts' parent is gone"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()


@contextmanager
def crash_hosts(folder: Path) -> Iterator[CrashHost]:
    """Start the process that forks hosts."""
    interposer = compile_interposer(folder)
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("crash_host.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "LD_PRELOAD": str(interposer)},
    )
    host = CrashHost(process)
    try:
        yield host
    finally:
        if host._pid:
            with suppress(ProcessLookupError):
                host.kill()
        for stream in (process.stdin, process.stdout):
            if stream:
                stream.close()
        process.wait(ANSWER_S)
