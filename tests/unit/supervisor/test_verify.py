import hashlib
import os
from pathlib import Path

import pytest

from trt_agent_tools.model.errors import Refusal
from trt_agent_tools.model.manifest import FileDigest, Manifest
from trt_agent_tools.supervisor.artefact import is_unchanged
from trt_agent_tools.supervisor.file_digest import Interrupt
from trt_agent_tools.supervisor.verify import Finding, verify


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """An engine, its model, a sidecar and the manifest that tells of them."""
    files = [tmp_path / name for name in ("a.engine", "a.onnx", "weights.bin")]
    for file in files:
        file.write_bytes(file.name.encode())
    digests = [
        FileDigest(
            path=str(file),
            bytes=file.stat().st_size,
            sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
        )
        for file in files
    ]
    manifest = Manifest(
        build_id="b_1",
        created_at="2026-01-01T00:00:00+00:00",
        backend="tensorrt_rtx",
        library="",
        versions={},
        device="cpu",
        engine=digests[0],
        model=digests[1],
        sidecars=digests[2:],
    )
    (tmp_path / "a.engine.json").write_text(manifest.model_dump_json())
    return files[0]


def findings(engine: Path) -> dict[str, Finding]:
    return {checked.role: checked.finding for checked in verify(engine)}


def test_what_was_not_touched_is_ok(engine: Path) -> None:
    assert set(findings(engine).values()) == {Finding.OK}


@pytest.mark.parametrize(
    ("name", "role"), [("a.engine", "engine"), ("a.onnx", "model"), ("weights.bin", "sidecar")]
)
def test_one_changed_byte_is_a_mismatch_of_that_file_alone(
    engine: Path, name: str, role: str
) -> None:
    file = engine.with_name(name)
    file.write_bytes(file.read_bytes()[:-1] + b"!")

    assert [r for r, found in findings(engine).items() if found is Finding.MISMATCH] == [role]


def test_an_engine_is_verified_elsewhere_and_without_its_model(
    engine: Path, tmp_path: Path
) -> None:
    (tmp_path / "shipped").mkdir()
    moved = engine.rename(tmp_path / "shipped" / "renamed.engine")
    (tmp_path / "a.engine.json").rename(tmp_path / "shipped" / "renamed.engine.json")
    (tmp_path / "a.onnx").unlink()

    assert findings(moved) == {
        "engine": Finding.OK,
        "model": Finding.GONE,
        "sidecar": Finding.OK,
    }


@pytest.mark.parametrize("broken", ["a.engine", "a.engine.json"])
def test_without_engine_or_manifest_nothing_is_said_of_it(engine: Path, broken: str) -> None:
    engine.with_name(broken).unlink()

    with pytest.raises(Refusal):
        verify(engine)


def test_a_manifest_that_is_none_is_refused(engine: Path) -> None:
    engine.with_name("a.engine.json").write_text("{}")

    with pytest.raises(Refusal, match="no manifest"):
        verify(engine)


def test_an_engine_that_is_linked_while_it_is_read_is_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = tmp_path / "m.engine"
    engine.write_bytes(b"engine" * 100_000)
    told = FileDigest(
        path=str(engine),
        bytes=engine.stat().st_size,
        sha256=hashlib.sha256(engine.read_bytes()).hexdigest(),
    )
    check = Interrupt.check

    def link_meanwhile(interrupt: Interrupt) -> None:
        check(interrupt)
        if not (tmp_path / "kept").exists():
            os.link(engine, tmp_path / "kept")

    monkeypatch.setattr(Interrupt, "check", link_meanwhile)
    assert is_unchanged(engine, told)
