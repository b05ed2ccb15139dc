import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import Models

LONGEST_S = 60
RECORDING = Path(__file__).parents[1] / "data" / "silent_step.jsonl"
"""20 s, of which it spends 18 s in one step without a callback."""


def command(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trt_agent_tools", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_S,
        env={**os.environ, **environment},
    )


def policy(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return command("policy", *arguments, **environment)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The user's folder of policies, with one that is valid and one that is not."""
    folder = tmp_path / "config" / "trt-agent-tools" / "policies"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text('description = "of my own"\n[rules]\nbuild_time = "2h"\n')
    (folder / "broken.toml").write_text('[rules]\nbuild_time = "soon"\n')
    return tmp_path / "config"


def test_list_tells_of_each_policy_where_it_is_from_and_what_it_is_for(config: Path) -> None:
    done = policy("list", XDG_CONFIG_HOME=str(config))

    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"default +shipped +\S.*", lines["default"])
    assert lines["mine"].endswith("of my own")
    assert str(config) in lines["mine"]
    assert "not valid: " in lines["broken"]


def test_a_policy_that_was_shown_can_be_used_as_a_file(config: Path, tmp_path: Path) -> None:
    shown = policy("show", "mine", XDG_CONFIG_HOME=str(config))
    (tmp_path / "copy.toml").write_text(shown.stdout)

    again = policy("show", tmp_path / "copy.toml")

    assert (shown.returncode, shown.stderr) == (0, "")
    assert 'build_time = { limit = "2h", mode = "enforce" }' in shown.stdout
    assert 'cancel_grace = "5s"' in shown.stdout
    assert again.stdout == shown.stdout


def test_check_of_a_valid_file_says_so_and_lists_the_rules_that_are_on(config: Path) -> None:
    done = policy("check", "mine", XDG_CONFIG_HOME=str(config))

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("mine is valid\n  build_time  2h, ")


def test_check_of_a_file_that_is_not_valid_names_line_key_and_what_is_valid(
    tmp_path: Path,
) -> None:
    file = tmp_path / "bad.toml"
    file.write_text('[rules]\nbuild_time = "soon"\nsilnt = "1h"\n')

    done = policy("check", file)

    first, second = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert first.startswith(f"{file}: line 2: rules.build_time: ")
    assert "15m" in first
    assert second.startswith(f"{file}: line 3: rules.silnt: ")
    assert "silent" in second


@pytest.mark.parametrize("name", ["nonsense", "../default", "none.toml", ""])
@pytest.mark.parametrize("verb", ["show", "check"])
def test_a_policy_that_is_not_there_is_refused(verb: str, name: str, tmp_path: Path) -> None:
    done = policy(verb, name, XDG_CONFIG_HOME=str(tmp_path))

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr
    assert "Traceback" not in done.stderr


def test_the_schema_is_json_and_knows_the_rules() -> None:
    done = policy("schema")

    schema = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert "build_time" in done.stdout


@pytest.fixture
def short(tmp_path: Path) -> Path:
    file = tmp_path / "short.toml"
    file.write_text(
        '[rules]\nbuild_time = "10s"\nsilent = { limit = "5s", mode = "observe" }\n'
        'host_memory = "1GiB"\n'
    )
    return file


def test_a_replay_tells_what_a_policy_would_have_done_to_a_recorded_build(short: Path) -> None:
    began = time.monotonic()
    done = policy("replay", short, RECORDING)
    took = time.monotonic() - began

    verdicts = [line.split()[:3] for line in done.stdout.splitlines()[:4]]
    assert (done.returncode, done.stderr) == (0, "")
    assert [words[1:] for words in verdicts] == [
        ["silent", "warned"],
        ["silent", "would_cancel"],
        ["build_time", "warned"],
        ["build_time", "cancel"],
    ]
    assert verdicts[3][0] == "10.0s"
    assert "not known: host_memory" in done.stdout
    assert done.stdout.endswith(
        "would have been cancelled at 10.0s by build_time; the recording succeeded at 20.0s\n"
    )
    assert took < 10, "the recording's own 20 s are not waited for"


def test_a_replay_of_a_policy_that_lets_the_build_live_says_so(tmp_path: Path) -> None:
    (tmp_path / "lax.toml").touch()

    done = policy("replay", tmp_path / "lax.toml", RECORDING)

    assert done.returncode == 0
    assert done.stdout == "would not have been cancelled; the recording succeeded at 20.0s\n"


def test_a_replay_as_json_holds_the_same_and_heeds_the_interval(
    tmp_path: Path, short: Path
) -> None:
    recording = tmp_path / "events.jsonl"
    lines = RECORDING.read_text().splitlines(keepends=True)
    recording.write_text("".join(line for line in lines if "heartbeat" not in line))

    done = policy("replay", short, recording, "--json", "--interval", "3s")

    timeline = json.loads(done.stdout)
    assert done.returncode == 0
    assert timeline["ended"]["rule"] == "build_time"
    assert timeline["ended"]["at_s"] == 12
    assert timeline["recorded"]["outcome"] == "succeeded"


@pytest.mark.parametrize(
    ("events", "more", "told"),
    [
        ("none.jsonl", [], "none.jsonl"),
        (".", [], "directory"),
        ("garbage.jsonl", [], "line 1"),
        (RECORDING, ["--interval", "0"], "--interval"),
    ],
)
def test_a_replay_of_what_is_no_recording_is_refused(
    tmp_path: Path, short: Path, events: Path | str, more: list[str], told: str
) -> None:
    (tmp_path / "garbage.jsonl").write_text("garbage\n")

    done = policy("replay", short, tmp_path / events, *more)

    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.tensorrt_rtx
def test_the_recording_of_a_real_build_can_be_replayed(
    tmp_path: Path, models: Models, short: Path
) -> None:
    state = tmp_path / "state"
    built = command("build", models.quick, "-o", tmp_path / "a.engine", "--state-dir", state)
    (recording,) = state.glob("builds/*/events.jsonl")

    done = policy("replay", short, recording)

    assert built.returncode == 0, built.stderr
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"would not have been cancelled; the recording succeeded at \d", done.stdout)
