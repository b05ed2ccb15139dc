"""The library's log is read back: warnings become events, the last errors explain a failure."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.worker.wire import Wire
from trt_agent_tools.model.events import LogLine, Severity
from trt_agent_tools.model.untrusted import MAX_LINE
from trt_agent_tools.worker.log_tail import LogTail


class Log:
    """A log file that is open as a worker's fd 2 is: to append, and to read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)

    def write(self, data: bytes) -> None:
        os.write(self.descriptor, data)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    made = Log(tmp_path / "build.log")
    yield made
    os.close(made.descriptor)


def lines(wire: Wire) -> list[tuple[Severity, str]]:
    return [(e.severity, e.message) for e in wire.events if isinstance(e, LogLine)]


def test_warnings_and_worse_are_told_and_the_rest_is_left_to_the_file(log: Log) -> None:
    with Wire() as wire:
        tail = LogTail(wire.channel, log.descriptor)
        log.write(b"[TRT] [I] begun\n[TRT] [W] slow\n[TRT] [V] detail\nprinted past the logger\n")
        log.write(b"[11/29/2026-12:33:53] [TRT] [E] bad\n[TRT] [F] worse\n")
        tail.poll()
    assert lines(wire) == [
        (Severity.WARNING, "slow"),
        (Severity.ERROR, "bad"),
        (Severity.INTERNAL_ERROR, "worse"),
    ]


def test_a_line_is_told_once_and_whole_however_it_was_written(log: Log) -> None:
    with Wire() as wire:
        tail = LogTail(wire.channel, log.descriptor)
        for byte in b"[TRT] [W] one\n[TRT] [W] tw\xc3\xb6\n":
            log.write(bytes([byte]))
            tail.poll()
        tail.poll()
    assert lines(wire) == [(Severity.WARNING, "one"), (Severity.WARNING, "twö")]


def test_the_last_errors_are_kept_in_their_order(log: Log) -> None:
    with Wire() as wire:
        tail = LogTail(wire.channel, log.descriptor)
        assert tail.last_error() is None
        for number in range(50):
            log.write(f"[TRT] [E] error {number}\n[TRT] [W] warning\n".encode())
        assert tail.errors() == [f"error {number}" for number in range(30, 50)]
        assert tail.last_error() == "error 49"


def test_errors_are_found_behind_any_amount_of_other_lines(log: Log) -> None:
    with Wire() as wire:
        tail = LogTail(wire.channel, log.descriptor)
        log.write(b"[TRT] [I] chatter\n" * 100_000)
        log.write(b"[TRT] [E] the reason\n")
        assert tail.errors() == ["the reason"]


def test_one_look_reads_no_more_than_its_share(log: Log) -> None:
    log.write(b"[TRT] [I] chatter\n" * 100_000 + b"[TRT] [W] far\n")
    with Wire() as wire:
        tail = LogTail(wire.channel, log.descriptor)
        tail.poll()
        assert wire.channel.now() < 10
    assert lines(wire) == []


def test_what_is_told_is_clean_and_bounded(log: Log) -> None:
    with Wire() as wire:
        tail = LogTail(wire.channel, log.descriptor)
        log.write(b"\x1b[31m[TRT] [E] \x1b]0;title\x07red\xff\x00\x1b[0m\n")
        log.write(b"[TRT] [E] " + b"x" * 100_000 + b"\n")
        errors = tail.errors()
    assert errors[0] == "red\N{REPLACEMENT CHARACTER}"
    assert len(errors[1]) <= MAX_LINE


def test_a_line_without_an_end_costs_neither_memory_nor_time(log: Log) -> None:
    with Wire() as wire:
        tail = LogTail(wire.channel, log.descriptor)
        log.write(b"[TRT] [E] endless ")
        os.truncate(log.path, 200 << 20)  # sparse
        began = time.process_time()
        assert tail.errors() == []
        assert time.process_time() - began < 5
        log.write(b"\n[TRT] [E] after it\n")
        assert tail.errors() == ["endless…", "after it"]


@given(st.lists(st.binary(max_size=200), max_size=10))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_can_be_logged(log: Log, parts: list[bytes]) -> None:
    os.truncate(log.path, 0)
    with Wire() as wire:
        tail = LogTail(wire.channel, log.descriptor)
        for part in parts:
            log.write(part)
            tail.poll()
        assert all(text and text.isprintable() for text in tail.errors())


def test_a_pipe_instead_of_a_file_is_followed_no_further() -> None:
    reader, writer = os.pipe()
    try:
        with Wire() as wire:
            tail = LogTail(wire.channel, reader)
            os.write(writer, b"[TRT] [E] unseen\n")
            tail.poll()
            assert tail.errors() == []
            assert tail.last_error() is None
    finally:
        os.close(reader)
        os.close(writer)
