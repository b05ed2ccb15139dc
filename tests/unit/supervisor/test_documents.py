"""Manifests, recordings and policies are read only as far as they can be believed."""

import json
import os
from pathlib import Path

import pytest

from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.manifest import FileDigest, Manifest
from trt_agent_tools.model.snapshot import Result, Snapshot
from trt_agent_tools.model.states import State
from trt_agent_tools.policy import files
from trt_agent_tools.supervisor import documents
from trt_agent_tools.supervisor.documents import (
    manifest_of_build,
    read_recording,
    readable_policies,
)

DIGEST = FileDigest(path="/m.engine", bytes=3, sha256="0" * 64)


def manifest(build_id: str = "b_1") -> Manifest:
    return Manifest(
        build_id=build_id,
        created_at="2026-01-01T00:00:00+00:00",
        backend="replay",
        library="",
        versions={},
        device="cpu",
        model=DIGEST,
        engine=DIGEST,
    )


def snapshot(path: Path | None, state: State = State.SUCCEEDED) -> Snapshot:
    result = path and Result(engine="/m.engine", bytes=3, sha256="0" * 64, manifest=str(path))
    return Snapshot(
        build_id="b_1", seq=1, state=state, summary="", elapsed_s=1, result=result or None
    )


def refusal(shown: Snapshot) -> Refusal:
    with pytest.raises(Refusal) as caught:
        manifest_of_build(shown)
    assert caught.value.info.code is ErrorCode.NO_MANIFEST
    assert caught.value.info.hint
    return caught.value


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.engine.json"


def test_the_manifest_is_the_one_beside_the_engine(path: Path) -> None:
    path.write_text(manifest().model_dump_json())
    assert manifest_of_build(snapshot(path)) == manifest()


@pytest.mark.parametrize("state", [State.BUILDING, State.FAILED])
def test_a_build_without_an_engine_has_no_manifest(state: State) -> None:
    assert refusal(snapshot(None, state)).info.details == {"state": state.value}


@pytest.mark.parametrize("content", ["", "{}", "[]", manifest("b_2").model_dump_json()])
def test_what_is_no_manifest_of_this_build_is_refused(path: Path, content: str) -> None:
    path.write_text(content)
    assert refusal(snapshot(path)).info.details == {"manifest": str(path)}


def test_a_manifest_that_is_gone_or_cannot_be_read_is_refused(path: Path) -> None:
    refusal(snapshot(path))
    path.mkdir()
    refusal(snapshot(path))
    path.rmdir()
    os.mkfifo(path)
    refusal(snapshot(path))
    path.unlink()
    path.symlink_to(path)
    refusal(snapshot(path))


def test_a_manifest_that_is_too_large_to_send_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = manifest().model_dump_json()
    path.write_text(text)
    monkeypatch.setattr(documents, "_MAX_MANIFEST_BYTES", len(text) - 1)
    refusal(snapshot(path))


def test_the_last_events_are_given_and_the_others_counted(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text("".join(json.dumps({"at": n}) + "\n" for n in range(10)))
    read = read_recording(path, "b_1", tail=2)
    assert read.lines == ['{"at":8}', '{"at":9}']
    assert (read.build_id, read.left_out, read.untrusted) == ("b_1", 8, True)


def test_a_build_that_recorded_nothing_has_no_events(tmp_path: Path) -> None:
    assert read_recording(tmp_path / "events.jsonl", "b_1", tail=5).lines == []


def test_lines_that_are_no_events_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"at":1}\n[]\n\xff\n' + b"[" * 100_000 + b'\n{"at":2}\n{"at":3,"ty')
    assert read_recording(path, "b_1", tail=5).lines == ['{"at":1}', '{"at":2}']


def test_nothing_in_an_event_is_invisible(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"name":"a\u200b\U000e0041ü"}\n', encoding="utf-8")
    (line,) = read_recording(path, "b_1", tail=5).lines
    assert line.isascii()
    assert json.loads(line) == {"name": "a\u200b\U000e0041ü"}


def test_a_long_recording_is_read_from_its_end_and_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with path.open("w") as file:
        for n in range(40):
            file.write(json.dumps({"n": n, "name": "x" * 100_000}) + "\n")
    read = read_recording(path, "b_1", tail=1000)
    assert 10 <= len(read.lines) < 40
    assert json.loads(read.lines[-1])["n"] == 39
    assert read.left_out == -1


def test_policies_come_with_their_files_and_say_which_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "mine.toml"
    own.write_text('description = "My own."\n')
    (tmp_path / "broken.toml").write_text("rules = 3\n")
    monkeypatch.setattr(files, "user_policies_folder", lambda: tmp_path)
    listed = {policy.name: policy for policy in readable_policies("mine").policies}
    assert listed["mine"].toml == own.read_text()
    assert listed["mine"].description == "My own."
    assert [name for name, policy in listed.items() if policy.is_default] == ["mine"]
    assert {"default", "ci", "overnight", "interactive"} <= set(listed)
    assert "broken" not in listed


def test_no_named_policy_is_the_default_of_an_operator_who_gave_a_file() -> None:
    assert not any(p.is_default for p in readable_policies("/etc/mine.toml").policies)
