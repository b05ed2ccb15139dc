"""The end of a log, for a reader who must not trust it: bounded, cleaned, honest about what is left out."""

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trt_agent_tools.model.events import Severity
from trt_agent_tools.model.snapshot import BuildLog, LogEntry
from trt_agent_tools.model.untrusted import MAX_LINE, one_line
from trt_agent_tools.supervisor.log_file import read_end, read_log


def read(path: Path, tail: int = 50, minimum: Severity | None = None) -> BuildLog:
    return read_log(path, "b_1", tail=tail, min_severity=minimum)


def texts(log: BuildLog) -> list[str]:
    return [line.text for line in log.lines]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "build.log"


def test_a_build_that_has_no_log_yet_has_an_empty_one(log: Path) -> None:
    assert read(log) == BuildLog(build_id="b_1", lines=[], left_out=0, untrusted=True)


def test_the_last_lines_are_shown_and_the_others_counted(log: Path) -> None:
    log.write_text("".join(f"line {n}\n" for n in range(100)))
    shown = read(log, tail=3)
    assert texts(shown) == ["line 97", "line 98", "line 99"]
    assert shown.left_out == 97


def test_of_a_file_of_any_size_only_so_much_of_the_end_is_read(log: Path) -> None:
    with log.open("wb") as file:
        file.truncate(1 << 40)
        file.seek(0, 2)
        file.write(b"\nbefore\nlast words\n")
    end = read_end(log, 64 * 1024)
    assert end.lines == ["before", "last words"]
    assert not end.is_whole


def test_severity_is_told_and_filters(log: Path) -> None:
    log.write_text("[TRT] [I] begun\n[TRT] [W] slow\nterminate called\n[TRT] [E] bad\n")
    assert read(log).lines == [
        LogEntry(text="begun", severity=Severity.INFO),
        LogEntry(text="slow", severity=Severity.WARNING),
        LogEntry(text="terminate called", severity=None),
        LogEntry(text="bad", severity=Severity.ERROR),
    ]
    errors = read(log, minimum=Severity.ERROR)
    # What bypassed the logger may be the reason of a crash.
    assert texts(errors) == ["terminate called", "bad"]
    assert errors.left_out == 0


def test_a_line_coloured_by_the_library_has_its_severity_all_the_same(log: Path) -> None:
    log.write_text("\x1b[31m[TRT] [E] bad\x1b[0m\n")
    assert read(log).lines == [LogEntry(text="bad", severity=Severity.ERROR)]


def test_half_a_line_at_the_end_is_shown(log: Path) -> None:
    log.write_text("whole\nhalf")
    assert texts(read(log)) == ["whole", "half"]


def test_lines_without_text_are_left_out(log: Path) -> None:
    log.write_bytes(b"\n  \n\x1b[0m\n\x00\x00\n[TRT] [I] \nseen\n")
    assert texts(read(log)) == ["seen"]


def test_of_a_huge_log_only_the_end_is_read(log: Path) -> None:
    with log.open("wb") as file:
        file.truncate(8 << 30)  # sparse
        file.seek(0, 2)
        file.write(b"\nlast but one\nlast\n")
    began = time.process_time()
    shown = read(log, tail=2)
    assert time.process_time() - began < 1
    assert texts(shown) == ["last but one", "last"]
    assert shown.left_out == -1


def test_of_a_huge_line_something_is_shown(log: Path) -> None:
    log.write_bytes(b"x" * (3 << 20))
    [line] = texts(read(log))
    assert len(line) == MAX_LINE


def test_the_first_line_of_a_cut_log_is_whole_or_not_shown(log: Path) -> None:
    log.write_text("0123456789\n" * 300_000)
    assert set(texts(read(log, tail=1_000_000))) == {"0123456789"}


@given(st.binary(max_size=2000), st.integers(1, 20), st.none() | st.sampled_from(Severity))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_give_a_bounded_clean_log(
    log: Path, data: bytes, tail: int, minimum: Severity | None
) -> None:
    log.write_bytes(data)
    shown = read(log, tail=tail, minimum=minimum)
    assert len(shown.lines) <= tail
    assert all(line.text and one_line(line.text) == line.text.strip() for line in shown.lines)
    shown.model_dump_json()


def test_a_log_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="directory"):
        read(tmp_path)
