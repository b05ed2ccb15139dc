"""The kept engines: bounded, the least recently used out first, whole or not there at all."""

import hashlib
import os
import threading
from pathlib import Path

import pytest
from filelock import FileLock

from trt_agent_tools.model.manifest import FileDigest, Manifest
from trt_agent_tools.supervisor.file_digest import Interrupt, InterruptedWorkError, Stamp
from trt_agent_tools.supervisor.reuse import cache as cache_module
from trt_agent_tools.supervisor.reuse.cache import EngineCache, Entry

KEY = "k" * 64
GO_ON = Interrupt()


class Kept:
    """A cache, and engines as builds have left them at their outputs."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.outputs = folder / "outputs"
        self.outputs.mkdir()
        self.folder = folder / "engines"
        self.cache = EngineCache(self.folder, limit_bytes)

    def built(self, name: str, size: int = 100, *, sidecar: bytes | None = None) -> Manifest:
        engine = self.outputs / f"{name}.engine"
        engine.write_bytes(hashlib.shake_256(name.encode()).digest(size))
        beside = [] if sidecar is None else [_digest(self.outputs / "weights.bin", sidecar)]
        return Manifest(
            build_id=f"b_{name}",
            created_at="2026-01-31T12:00:00+00:00",
            backend="replay",
            library="replay",
            versions={},
            device="cpu",
            model=_digest(self.outputs / "m.onnx", name.encode()),
            sidecars=beside,
            engine=_digest(engine, engine.read_bytes()),
        )

    def add(self, name: str, size: int = 100) -> bool:
        made = self.built(name, size)
        stamp = Stamp.of(Path(made.engine.path).stat())
        return self.cache.add(KEY, made, stamp, GO_ON)

    def one(self, name: str) -> Entry | None:
        found = self.cache.find(KEY, hashlib.sha256(name.encode()).hexdigest())
        return found[0] if found else None

    def names(self) -> list[str]:
        return [entry.manifest.build_id.removeprefix("b_") for entry in self.cache.entries()]


def _digest(path: Path, content: bytes) -> FileDigest:
    return FileDigest(
        path=str(path), bytes=len(content), sha256=hashlib.sha256(content).hexdigest()
    )


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path, 250)


def found(entry: Entry | None) -> Entry:
    assert entry is not None
    return entry


def use(kept: Kept, name: str) -> None:
    entry = found(kept.one(name))
    verified = entry.check(GO_ON)
    assert verified is not None
    entry.used(verified)
    # Later than whatever was used before, however coarse the clock is.
    at = 10**9 + max(path.stat().st_mtime_ns for path in kept.folder.glob("*/seen.json"))
    os.utime(entry.folder / "seen.json", ns=(at, at))


def test_an_engine_is_kept_without_taking_space_a_second_time(kept: Kept) -> None:
    assert kept.add("a")
    entry = found(kept.one("a"))
    assert entry.engine.samefile(kept.outputs / "a.engine")
    assert kept.cache.has_any(KEY)
    assert not kept.cache.has_any("x" * 64)


def test_the_least_recently_used_engine_goes_first(kept: Kept) -> None:
    kept.add("a")
    use(kept, "a")
    kept.add("b")
    use(kept, "b")
    use(kept, "a")
    kept.add("c")
    assert sorted(kept.names()) == ["a", "c"]
    assert (kept.outputs / "b.engine").exists()


def test_an_engine_larger_than_the_cache_is_not_kept_and_drives_out_none(kept: Kept) -> None:
    kept.add("a")
    assert not kept.add("big", 251)
    assert kept.names() == ["a"]


def test_however_small_engines_are_there_are_not_more_than_so_many(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "MAX_ENTRIES", 3)
    for number in range(5):
        kept.add(f"e{number}", 1)
    assert len(kept.names()) == 3


def test_the_newest_engine_of_a_request_takes_the_place_of_the_older(kept: Kept) -> None:
    kept.add("a")
    kept.add("a", 50)
    assert [entry.manifest.engine.bytes for entry in kept.cache.entries()] == [50]


def test_one_model_with_other_weights_beside_it_is_another_entry(kept: Kept) -> None:
    for weights in (b"one", b"two"):
        made = kept.built("a", sidecar=weights)
        assert kept.cache.add(KEY, made, None, GO_ON)
    assert len(kept.cache.entries()) == 2


def test_an_unchanged_engine_is_not_read_again_and_a_changed_one_is(kept: Kept) -> None:
    kept.add("a")
    told = Interrupt()
    told.tell()
    assert found(kept.one("a")).check(told)
    # Same size, same time of change: what the owner of the file can put back.
    engine = kept.outputs / "a.engine"
    before = engine.stat()
    engine.write_bytes(b"x" * 100)
    os.utime(engine, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(InterruptedWorkError):
        found(kept.one("a")).check(told)
    assert found(kept.one("a")).check(GO_ON) is None


def test_a_link_more_makes_an_engine_be_read_once_more(kept: Kept) -> None:
    kept.add("a")
    entry = found(kept.one("a"))
    (kept.outputs / "other.engine").hardlink_to(entry.engine)
    told = Interrupt()
    told.tell()
    with pytest.raises(InterruptedWorkError):
        entry.check(told)
    verified = entry.check(GO_ON)
    assert verified is not None
    entry.used(verified)
    assert found(kept.one("a")).check(told) == verified


@pytest.mark.parametrize("content", [b"", b"x" * 99, b"x" * 100])
def test_an_engine_that_was_altered_before_it_was_kept_is_never_given_out(
    kept: Kept, content: bytes
) -> None:
    made = kept.built("a")
    stamp = Stamp.of(Path(made.engine.path).stat())
    Path(made.engine.path).write_bytes(content)
    kept.cache.add(KEY, made, stamp, GO_ON)
    entry = kept.one("a")
    assert entry is None or entry.check(GO_ON) is None


def test_a_symbolic_link_at_the_output_is_not_kept(kept: Kept) -> None:
    made = kept.built("a")
    engine = Path(made.engine.path)
    engine.rename(kept.outputs / "elsewhere")
    engine.symlink_to(kept.outputs / "elsewhere")
    assert not kept.cache.add(KEY, made, None, GO_ON)
    assert kept.names() == []


def test_where_no_link_is_possible_the_engine_is_copied(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", _no_link)
    assert kept.add("a")
    entry = found(kept.one("a"))
    assert not entry.engine.samefile(kept.outputs / "a.engine")
    (kept.outputs / "a.engine").write_bytes(b"written to")
    assert entry.check(GO_ON)


def _no_link(*_: object, **__: object) -> None:
    raise OSError(18, "Invalid cross-device link")


def test_a_copy_that_is_not_wanted_any_more_leaves_nothing(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", _no_link)
    told = Interrupt()
    told.tell()
    with pytest.raises(InterruptedWorkError):
        kept.cache.add(KEY, kept.built("a"), None, told)
    assert [path.name for path in kept.folder.iterdir() if path.name != ".lock"] == []


def test_what_a_server_that_died_left_is_swept_and_the_rest_stays(kept: Kept) -> None:
    kept.add("a")
    for name in (".new.1", ".old.2"):
        (kept.folder / name).mkdir()
        (kept.folder / name / "engine").write_bytes(b"half")
    kept.cache.sweep()
    assert kept.names() == ["a"]
    assert not list(kept.folder.glob(".[no]*"))


def test_a_smaller_cache_than_before_is_cut_to_its_size(kept: Kept) -> None:
    kept.add("a")
    use(kept, "a")
    kept.add("b")
    use(kept, "b")
    EngineCache(kept.folder, 100).sweep()
    assert kept.names() == ["b"]


def test_another_server_that_changes_the_folder_is_waited_for(kept: Kept) -> None:
    kept.add("a")
    kept.built("b")
    added: list[bool] = []
    with FileLock(kept.folder / ".lock"):
        thread = threading.Thread(target=lambda: added.append(kept.add("b")))
        thread.start()
        # Readers need no turn.
        assert kept.one("a")
        assert not added
    thread.join(20)
    assert added == [True]


def test_a_folder_that_stays_locked_is_given_up_on(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "LOCK_S", 0.0)
    kept.add("a")
    with FileLock(kept.folder / ".lock"), pytest.raises(OSError, match="lock"):
        kept.add("b")


def test_clearing_leaves_the_engines_that_builds_have_written(kept: Kept) -> None:
    kept.add("a")
    kept.add("b")
    assert kept.cache.clear() == (2, 200)
    assert kept.names() == []
    assert (kept.outputs / "a.engine").exists()
    assert EngineCache(kept.folder / "none", 1).clear() == (0, 0)
