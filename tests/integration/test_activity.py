"""The processes whose use is sampled, on real ones."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from trt_agent_tools.supervisor.activity import usage_of
from trt_agent_tools.supervisor.process.process_tree import ProcessTree

# One child of the first thread and one of another, which has a child too; each says its pid.
FAMILY = """\
import subprocess, sys, threading
SLEEPS = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
STARTS = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEPS!r}]);" + SLEEPS
subprocess.Popen([sys.executable, "-c", SLEEPS])
ended = threading.Event()
def start():
    subprocess.Popen([sys.executable, "-c", STARTS])
    ended.wait()
threading.Thread(target=start).start()
"""


@contextmanager
def family() -> Iterator[tuple[int, set[int]]]:
    """Give the pid of a parent of threads and those of all below it."""
    with subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        below = {int(parent.stdout.readline()) for _ in range(3)}
        everybody = [psutil.Process(pid) for pid in (parent.pid, *below)]
        try:
            yield parent.pid, below
        finally:
            for process in everybody:
                process.kill()


def end(pid: int) -> None:
    """Kill a process and return when it is dead. Nobody reaps it: it stays a zombie."""
    watched = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    dead, _, _ = select.select([watched], [], [], 10)
    os.close(watched)
    assert dead


def test_children_of_every_thread_and_their_children_are_found() -> None:
    with family() as (parent, below):
        tree = ProcessTree(parent, "no token")
        assert {process.pid for process in tree.descendants()} == {parent, *below}


def test_a_child_whose_parent_is_gone_is_still_counted_and_one_that_ended_is_not() -> None:
    with family() as (parent, below):
        tree = ProcessTree(parent, "no token")
        (middle,) = (pid for pid in below if psutil.Process(pid).children())
        tree.descendants()
        end(middle)
        assert {process.pid for process in tree.descendants()} == {parent, *below} - {middle}


def test_usage_is_that_of_all_processes_together() -> None:
    with family() as (parent, below):
        tree = ProcessTree(parent, "no token")
        usage = usage_of(tree.descendants())
        alone = [psutil.Process(pid).memory_info().rss for pid in (parent, *below)]
        assert usage.rss_bytes > max(alone)
        assert usage.cpu_s > 0
