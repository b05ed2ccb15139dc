import os
import stat
from pathlib import Path

import pytest

from trt_agent_tools.api import host_log
from trt_agent_tools.api.host_log import log_here, log_size, log_tail, open_log
from trt_agent_tools.api.place import LOG


def write(state_dir: Path, text: str) -> None:
    descriptor = open_log(state_dir)
    os.write(descriptor, text.encode())
    os.close(descriptor)


def test_the_tail_has_only_what_came_since(tmp_path: Path) -> None:
    write(tmp_path, "an error of last week\n")
    since = log_size(tmp_path)
    write(tmp_path, "\n".join(f"line {number}" for number in range(30)) + "\n\n")
    assert log_tail(tmp_path, since) == [f"line {number}" for number in range(20, 30)]


def test_the_tail_of_a_log_that_was_begun_anew_is_all_of_it(tmp_path: Path) -> None:
    write(tmp_path, "new\n")
    assert log_tail(tmp_path, 10_000) == ["new"]


def test_without_a_log_there_is_no_tail(tmp_path: Path) -> None:
    assert log_size(tmp_path) == 0
    assert log_tail(tmp_path, 0) == []


def test_the_tail_is_safe_to_show(tmp_path: Path) -> None:
    write(tmp_path, "\x1b[31mred\x1b[0m\x07 text\n")
    assert log_tail(tmp_path, 0) == ["red  text"]


def test_the_log_is_this_users_alone(tmp_path: Path) -> None:
    write(tmp_path, "x")
    assert stat.S_IMODE((tmp_path / LOG).stat().st_mode) == 0o600


def test_a_long_log_is_set_aside_at_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(host_log, "MAX_LOG_BYTES", 10)
    write(tmp_path, "more than ten bytes")
    kept = os.dup(1), os.dup(2)
    try:
        log_here(tmp_path)
        os.write(1, b"out ")
        os.write(2, b"err")
    finally:
        for number, descriptor in enumerate(kept, 1):
            os.dup2(descriptor, number)
            os.close(descriptor)
    assert (tmp_path / LOG).read_text() == "out err"
    assert (tmp_path / (LOG + ".1")).read_text() == "more than ten bytes"
