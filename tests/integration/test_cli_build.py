import contextlib
import fcntl
import hashlib
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import psutil
import pytest
from onnx import TensorProto, helper

from trt_agent_tools.cli.demo_models import transformer
from trt_agent_tools.model.snapshot import Snapshot
from trt_agent_tools.model.states import Reason, Rung, State
from trt_agent_tools.model.verdict import Action, Rule

pytestmark = pytest.mark.tensorrt_rtx

LONGEST_S = 60.0
CTRL_C = b"\x03"
TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
"""Makes standard input the controlling terminal, so that Ctrl-C typed there is a signal."""


class Command:
    """The real command in a process of its own; its output is read with a deadline."""

    def __init__(
        self, arguments: list[str], *, terminal: bool = False, under: tuple[str, ...] = ()
    ) -> None:
        self.output = ""
        if terminal:
            self._read, slave = pty.openpty()
            fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 110, 0, 0))
        else:
            self._read, slave = os.pipe()
        command = [*under, sys.executable, "-m", "trt_agent_tools", *arguments]
        self.process = subprocess.Popen(
            [sys.executable, "-c", TAKE_TERMINAL, *command] if terminal else command,
            stdin=slave if terminal else subprocess.DEVNULL,
            stdout=slave,
            stderr=slave if terminal else subprocess.PIPE,
            env={**os.environ, "TERM": "xterm-256color"},
            start_new_session=True,
        )
        os.close(slave)

    def read_until(self, shown: Callable[[str], bool]) -> str:
        deadline = time.monotonic() + LONGEST_S
        while not shown(self.output):
            if not self._read_more(deadline):
                pytest.fail(f"the output ended early: {self.output}")
        return self.output

    def type(self, keys: bytes) -> None:
        os.write(self._read, keys)

    def stop_reading(self) -> None:
        os.close(self._read)
        self._read = -1

    def end(self) -> tuple[int, str, str]:
        """Return exit status, standard output and standard error."""
        deadline = time.monotonic() + LONGEST_S
        while self._read >= 0 and self._read_more(deadline):
            pass
        errors = self.process.stderr.read().decode() if self.process.stderr else ""
        return self.process.wait(LONGEST_S), self.output, errors

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(LONGEST_S)
        if self.process.stderr:
            self.process.stderr.close()
        if self._read >= 0:
            self.stop_reading()

    def workers(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def _read_more(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._read], [], [], max(deadline - time.monotonic(), 0))
        if not ready:
            pytest.fail(f"nothing more was printed in time: {self.output}")
        try:
            read = os.read(self._read, 1 << 16)
        except OSError:  # a terminal whose last process has ended
            return False
        self.output += read.decode(errors="replace")
        return bool(read)


Start = Callable[..., Command]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with contextlib.ExitStack() as stack:

        def begin(*arguments: object, terminal: bool = False) -> Command:
            words = ["build", *map(str, arguments), "--state-dir", str(tmp_path / "state")]
            command = Command(words, terminal=terminal)
            stack.callback(command.close)
            return command

        yield begin


@pytest.fixture
def small(folder: Path) -> Path:
    # Its builder works for longer than a display takes to show it.
    transformer(folder / "small.onnx", blocks=6)
    return folder / "small.onnx"


@pytest.fixture
def long(folder: Path) -> Path:
    """A model that builds for some ten seconds at least, most of it in one silent step."""
    transformer(folder / "long.onnx", blocks=80)
    return folder / "long.onnx"


@pytest.fixture
def quick(tmp_path: Path) -> Path:
    """A policy under which a build that sits in a silent step is ended soon."""
    policy = tmp_path / "quick.toml"
    policy.write_text('[escalation]\ncancel_grace = "0.5s"\nterminate_grace = "2s"\n')
    return policy


def is_silent(output: str) -> bool:
    """Whether lines of JSON show a build inside its silent step."""
    snapshots = [json.loads(line) for line in output.splitlines()[:-1]]
    return any(s["state"] == "building" and s.get("quiet_s", 0) > 0.5 for s in snapshots)


def assert_nothing_is_left(workers: list[psutil.Process], model: Path) -> None:
    assert workers
    assert not [process for process in workers if process.is_running()]
    assert list(model.parent.iterdir()) == [model]


def test_a_build_ends_with_status_0_and_an_engine_of_the_digest_told(
    start: Start, small: Path
) -> None:
    status, output, errors = start(small).end()

    assert (status, errors) == (0, "")
    assert re.match(r" +[\d.]+s  (queued|starting)\n", output)
    assert "  building\n" in output
    assert re.search(r"finished  Building", output)
    engine = small.with_suffix(".engine")
    assert f"engine    {engine}\n" in output
    assert f"sha256    {hashlib.sha256(engine.read_bytes()).hexdigest()}\n" in output
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f]", output)


def test_json_is_a_snapshot_a_line_and_the_last_one_is_the_end_in_full(
    start: Start, small: Path
) -> None:
    status, output, _ = start(small, "--json", "--label", "nightly").end()

    snapshots = [Snapshot.model_validate_json(line) for line in output.splitlines()]
    seqs = [snapshot.seq for snapshot in snapshots]
    assert status == 0
    assert seqs == sorted(seqs)
    assert snapshots[-1].state is State.SUCCEEDED
    assert snapshots[-1].label == "nightly"
    assert snapshots[-1].result is not None
    assert snapshots[-1].versions
    assert snapshots[-1].phases


def test_options_and_profiles_reach_the_builder(start: Start, folder: Path) -> None:
    model = folder / "dynamic.onnx"
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "dynamic",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 8])],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), model
    )

    command = start(
        model, "--profile", "x=1x8:4x8:8x8", "--option", "builder_optimization_level=1", "--json"
    )
    status, output, errors = command.end()

    assert (status, errors) == (0, "")
    options = {option["name"]: option for option in json.loads(output.splitlines()[-1])["options"]}
    assert options["builder_optimization_level"]["effective"] == "1"


def test_model_and_output_may_be_anywhere_that_the_person_names(
    start: Start, small: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    output = tmp_path / "elsewhere" / "named.engine"

    status, _, errors = start(small, "-o", output).end()

    assert (status, errors) == (0, "")
    assert output.stat().st_size > 0


def test_given_roots_hold_for_the_command_too(start: Start, small: Path, tmp_path: Path) -> None:
    status, output, errors = start(small, "-o", tmp_path / "a.engine", "--root", small.parent).end()

    assert (status, output) == (2, "")
    assert errors.startswith("error: outside_roots: ")


def test_a_refused_request_is_status_2_with_a_hint(start: Start, folder: Path) -> None:
    status, output, errors = start(folder / "none.onnx").end()

    assert (status, output) == (2, "")
    assert re.fullmatch(r"error: model_not_found: .+\nhint: .+\n", errors)


def test_an_engine_that_is_there_is_kept_unless_overwrite_is_said(
    start: Start, small: Path
) -> None:
    engine = small.with_suffix(".engine")
    engine.write_text("mine")

    status, _, errors = start(small).end()
    assert status == 2
    assert "error: output_exists" in errors
    assert "--overwrite" in errors
    assert engine.read_text() == "mine"

    status, _, _ = start(small, "--overwrite").end()
    assert status == 0
    assert engine.stat().st_size > len("mine")


def test_a_failed_build_is_status_1_and_tells_the_error(start: Start, folder: Path) -> None:
    model = folder / "truncated.onnx"
    transformer(model, blocks=1)
    os.truncate(model, model.stat().st_size // 2)

    status, output, errors = start(model).end()

    assert status == 1
    assert "failed" in output
    assert "error: invalid_model: " in errors
    assert list(folder.iterdir()) == [model]


@pytest.mark.parametrize(
    ("limit", "rule"),
    [
        ("build_time=3s", "build_time"),
        ("silent=3s", "silent"),
        ("phase_time:Building=3", "phase_time"),
    ],
    ids=["build_time", "silent", "phase_time"],
)
def test_a_limit_ends_the_build_with_status_3_and_says_which_and_why(
    start: Start, long: Path, quick: Path, limit: str, rule: str
) -> None:
    command = start(long, "--policy", quick, "--limit", limit)
    command.read_until(lambda output: "started" in output or "finished" in output)
    workers = command.workers()
    status, output, errors = command.end()

    value = r"[\d.]+s of at most [\d.]+s"
    assert status == 3
    assert len(re.findall(rf"  warning   {rule}: .*{value}", output)) == 1
    assert len(re.findall(rf"  exceeded  {rule}: .*{value}", output)) == 1
    assert re.search(
        rf"^cancelled \({rule}\), ended by (ask|terminate) after", output, re.MULTILINE
    )
    assert re.fullmatch(rf"stopped by policy quick: {rule}: .*{value}.*\n", errors)
    assert "extend_build" not in output + errors
    assert_nothing_is_left(workers, long)


def test_json_has_the_verdict_that_ended_a_build(start: Start, long: Path, quick: Path) -> None:
    status, output, errors = start(
        long, "--policy", quick, "--json", "--limit", "build_time=2s"
    ).end()

    final = Snapshot.model_validate_json(output.splitlines()[-1])
    assert status == 3
    assert (final.state, final.reason) == (State.CANCELLED, Reason.BUILD_TIME)
    assert [(v.rule, v.action) for v in final.verdicts or []] == [
        (Rule.BUILD_TIME, Action.WARNED),
        (Rule.BUILD_TIME, Action.CANCEL),
    ]
    assert errors.startswith("stopped by policy quick: build_time: ")


def test_a_rule_that_only_observes_is_told_and_the_build_succeeds(
    start: Start, small: Path, tmp_path: Path
) -> None:
    policy = tmp_path / "watching.toml"
    policy.write_text('[rules]\nbuild_time = { limit = "10ms", mode = "observe" }\n')

    status, output, errors = start(small, "--policy", policy).end()

    assert (status, errors) == (0, "")
    assert len(re.findall(r"  exceeded  build_time: .* \(only observed\)", output)) == 1


def test_a_limit_is_shown_on_a_terminal_while_it_is_near(
    start: Start, long: Path, quick: Path
) -> None:
    command = start(long, "--policy", quick, "--limit", "build_time=2s", terminal=True)
    status, output, _ = command.end()

    assert status == 3
    assert re.search(r"! warned: build_time 1\.\ds of 2\.0s", output)
    assert re.search(r"! exceeded: build_time 2\.\ds of 2\.0s", output)
    assert "stopped by policy quick: build_time: " in output
    assert output.rindex("\x1b[?25h") > output.rindex("\x1b[?25l")


@pytest.mark.parametrize(
    ("limits", "code", "told"),
    [
        (["build_time=2h"], "above_ceiling", "--policy"),
        (["gpu_time=1h"], "budget_exhausted", "--limit gpu_time"),
        (["nonsense=1h"], "invalid_argument", "build_time"),
        (["build_time=soon"], "invalid_argument", "15m"),
        (["build_time=0"], "invalid_argument", "15m"),
        (["host_memory=much"], "invalid_argument", "16GiB"),
        (["phase_time:a >> b=1s"], "invalid_argument", "15m"),
        (["build_time=1s", "build_time=2s"], "invalid_argument", "RULE=VALUE"),
    ],
)
def test_a_limit_that_cannot_be_given_is_refused_with_what_can(
    start: Start, small: Path, tmp_path: Path, limits: list[str], code: str, told: str
) -> None:
    policy = tmp_path / "firm.toml"
    policy.write_text('[rules]\nbuild_time = "1h"\n[session]\ngpu_time = "10m"\n')
    words = [word for limit in limits for word in ("--limit", limit)]

    status, output, errors = start(small, "--policy", policy, *words).end()

    assert (status, output) == (2, "")
    assert re.fullmatch(rf"error: {code}: .+\nhint: .+\n", errors)
    assert told in errors.splitlines()[1]
    assert "extend_build" not in errors
    assert "open_session" not in errors


def test_a_state_folder_that_cannot_be_used_is_refused(small: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = Command(["build", str(small), "--state-dir", str(tmp_path / "file" / "state")])

    status, _, errors = command.end()
    command.close()

    assert status == 2
    assert "state folder" in errors
    assert "--state-dir" in errors


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=["SIGINT", "SIGTERM", "SIGHUP"],
)
def test_a_signal_cancels_and_leaves_no_process_and_no_file(
    start: Start, long: Path, quick: Path, number: signal.Signals, status: int
) -> None:
    command = start(long, "--json", "--policy", quick)
    command.read_until(is_silent)
    workers = command.workers()

    command.process.send_signal(number)
    command.read_until(lambda output: '"cancelling"' in output)
    if number is not signal.SIGINT:  # whoever sends it twice does not mean to kill
        command.process.send_signal(number)
    ended, output, errors = command.end()

    assert ended == status
    final = Snapshot.model_validate_json(output.splitlines()[-1])
    assert final.state is State.CANCELLED
    assert final.ended_by is Rung.TERMINATE
    assert "Ctrl-C again kills" in errors
    assert_nothing_is_left(workers, long)


def test_a_build_started_to_outlive_its_terminal_does(small: Path, tmp_path: Path) -> None:
    nohup = ("sh", "-c", "trap '' HUP; exec \"$@\"", "sh")
    command = Command(["build", str(small), "--state-dir", str(tmp_path / "state")], under=nohup)
    command.read_until(lambda output: "starting" in output)

    command.process.send_signal(signal.SIGHUP)
    status, _, _ = command.end()
    command.close()

    assert status == 0


def test_a_second_ctrl_c_kills_the_build_without_waiting_for_the_grace_period(
    start: Start, long: Path, tmp_path: Path
) -> None:
    policy = tmp_path / "patient.toml"
    policy.write_text('[escalation]\ncancel_grace = "5m"\nterminate_grace = "5m"\n')
    command = start(long, "--json", "--policy", policy)
    command.read_until(is_silent)
    workers = command.workers()

    command.process.send_signal(signal.SIGINT)
    command.read_until(lambda output: '"cancelling"' in output)
    command.process.send_signal(signal.SIGINT)
    status, output, _ = command.end()

    assert status == 130
    assert Snapshot.model_validate_json(output.splitlines()[-1]).ended_by is Rung.KILL
    assert_nothing_is_left(workers, long)


def test_a_reader_that_goes_away_ends_the_build(start: Start, long: Path) -> None:
    command = start(long, "--json")
    command.read_until(is_silent)
    workers = command.workers()

    command.stop_reading()
    status, _, errors = command.end()

    assert (status, errors) == (141, "")
    assert_nothing_is_left(workers, long)


def test_a_terminal_shows_nested_bars_and_gets_its_cursor_back(start: Start, small: Path) -> None:
    status, output, _ = start(small, terminal=True).end()

    assert status == 0
    assert "small.onnx" in output
    assert re.search(r"▸ Building .*━.*\d+/\d+", output)
    assert re.search(r"\n {2,}▸ ", output)
    assert "✓ Parsing the model" in output
    assert "succeeded after" in output
    assert output.rindex("\x1b[?25h") > output.rindex("\x1b[?25l")


def test_ctrl_c_on_a_terminal_asks_and_then_kills(start: Start, long: Path) -> None:
    command = start(long, terminal=True)
    command.read_until(lambda output: "quiet" in output)
    workers = command.workers()

    command.type(CTRL_C)
    command.read_until(lambda output: "Ctrl-C again kills" in output)
    command.type(CTRL_C)
    status, output, _ = command.end()

    assert status == 130
    assert "■" in output
    assert "ended by kill" in output
    assert output.rindex("\x1b[?25h") > output.rindex("\x1b[?25l")
    assert_nothing_is_left(workers, long)


def test_a_terminal_that_is_closed_ends_the_build(start: Start, long: Path) -> None:
    command = start(long, terminal=True)
    command.read_until(lambda output: "quiet" in output)
    workers = command.workers()

    command.stop_reading()
    status, _, _ = command.end()

    assert status in {129, 141}  # the signal or the failed write is seen first
    assert_nothing_is_left(workers, long)
