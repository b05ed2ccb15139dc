"""The timing cache file under a config that answers as the library's does: the library needs a GPU."""

import errno
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import given
from hypothesis import strategies as st

from trt_agent_tools.worker import timing_cache
from trt_agent_tools.worker.gpu_identity import as_name
from trt_agent_tools.worker.library_types import IHostMemory, ITimingCache
from trt_agent_tools.worker.timing_cache import CacheError, CacheState, TimingCache, cache_path

DEADLINE_S = 30
MERGES = 20


class Cache:
    """Lines of what was measured; `fits` is whether the library's version and GPU made it."""

    def __init__(self, data: bytes, *, fits: bool = True) -> None:
        self.lines = set(data.splitlines())
        self.fits = fits

    def serialize(self) -> IHostMemory:
        return memoryview(b"\n".join(sorted(self.lines)))

    def combine(self, input_cache: ITimingCache, ignore_mismatch: bool) -> bool:
        assert ignore_mismatch is False
        if self.fits:
            self.lines |= set(bytes(memoryview(input_cache.serialize())).splitlines())
        return self.fits


class Config:
    """Answers as `IBuilderConfig` does, and keeps what it was given."""

    def __init__(self) -> None:
        self.fits = True
        self.readable = True
        self.fault: Exception | None = None
        self.given: bytes | None = None
        self.cache: ITimingCache | None = None

    def create_timing_cache(self, serialized_timing_cache: bytes) -> ITimingCache | None:
        if self.fault:
            raise self.fault
        self.given = serialized_timing_cache
        return Cache(serialized_timing_cache, fits=self.fits) if self.readable else None

    def set_timing_cache(self, cache: ITimingCache, ignore_mismatch: bool) -> bool:
        assert ignore_mismatch is False
        if self.fits:
            self.cache = cache
        return self.fits

    def get_timing_cache(self) -> ITimingCache | None:
        return self.cache


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path.resolve() / "timing.cache"


@pytest.fixture
def config() -> Config:
    return Config()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def build(path: Path, config: Config, measured: bytes) -> None:
    """What a build does with its cache, from beginning to end."""
    cache = TimingCache(config, path)
    cache.load()
    assert isinstance(config.cache, Cache)
    config.cache.lines.add(measured)
    cache.merge()


def test_the_first_build_starts_cold_and_leaves_a_cache(path: Path, config: Config) -> None:
    cache = TimingCache(config, path)
    cache.load()
    assert cache.state is CacheState.COLD
    assert config.given == b""
    config.cache = Cache(b"measured")
    cache.merge()
    assert path.read_bytes() == b"measured"
    assert names(path.parent) == {path.name, f"{path.name}.lock"}


def test_the_next_build_starts_from_the_cache(path: Path, config: Config) -> None:
    path.write_bytes(b"measured")
    cache = TimingCache(config, path)
    cache.load()
    assert cache.state is CacheState.WARM
    assert config.given == b"measured"


def test_a_build_that_measured_nothing_new_writes_nothing(path: Path, config: Config) -> None:
    path.write_bytes(b"measured")
    before = path.stat()
    build(path, config, b"measured")
    assert path.stat().st_ino == before.st_ino


def test_what_another_build_wrote_meanwhile_is_kept(path: Path) -> None:
    config, other = Config(), Config()
    cache = TimingCache(config, path)
    cache.load()
    build(path, other, b"of another")
    config.cache = Cache(b"of this one")
    cache.merge()
    assert path.read_bytes().splitlines() == [b"of another", b"of this one"]


@pytest.mark.parametrize(("fits", "readable"), [(False, True), (True, False)])
def test_a_cache_that_does_not_fit_is_refused_in_the_library_s_words_and_never_written(
    path: Path, config: Config, *, fits: bool, readable: bool
) -> None:
    path.write_bytes(b"another GPU's")
    config.fits, config.readable = fits, readable
    cache = TimingCache(config, path)
    log = iter(["of before", "the header does not match"])
    with pytest.raises(CacheError, match=r"\(its log says: the header does not match\)"):
        cache.load(lambda: next(log))
    config.cache = Cache(b"measured")
    cache.merge()
    assert cache.state is CacheState.REFUSED
    assert path.read_bytes() == b"another GPU's"


def test_an_old_line_of_the_log_is_no_reason(path: Path, config: Config) -> None:
    config.fits = False
    with pytest.raises(CacheError) as raised:
        TimingCache(config, path).load(lambda: "an old line")
    assert "old line" not in str(raised.value)


def test_what_the_library_raises_is_a_reason_and_no_end(path: Path, config: Config) -> None:
    config.fault = RuntimeError("of the library")
    with pytest.raises(CacheError, match="RuntimeError: of the library"):
        TimingCache(config, path).load()


def make_folder(path: Path) -> None:
    path.mkdir()


def make_large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(timing_cache.MAX_BYTES + 1)


@pytest.mark.parametrize("make", [make_folder, os.mkfifo, make_large])
def test_what_is_no_cache_file_is_refused_at_once(
    path: Path, config: Config, make: Callable[[Path], None]
) -> None:
    make(path)
    with pytest.raises(CacheError):
        TimingCache(config, path).load()


def test_a_folder_that_is_gone_refuses_the_cache(path: Path, config: Config) -> None:
    with pytest.raises(CacheError, match="folder does not exist"):
        TimingCache(config, path / "gone" / "timing.cache").load()
    assert names(path.parent) == set()


def test_a_lock_that_others_keep_bounds_the_wait(
    path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing_cache, "LOCK_S", 0.1)
    cache = TimingCache(config, path)
    cache.load()
    config.cache = Cache(b"measured")
    with FileLock(f"{path}.lock"):
        with pytest.raises(CacheError, match="others have held its lock"):
            cache.merge()
        with pytest.raises(CacheError, match="others have held its lock"):
            TimingCache(config, path).load()
    assert not path.exists()


def test_a_full_disk_leaves_the_cache_as_it_was_and_says_what_to_do(
    path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(b"before")
    cache = TimingCache(config, path)
    cache.load()
    config.cache = Cache(b"measured")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CacheError, match="free some space"):
        cache.merge()
    assert path.read_bytes() == b"before"
    assert names(path.parent) == {path.name, f"{path.name}.lock"}


def test_what_a_killed_build_left_half_written_is_in_nobody_s_way(
    path: Path, config: Config
) -> None:
    (path.parent / f".{path.name}.partial").write_bytes(b"half")
    build(path, config, b"measured")
    assert path.read_bytes() == b"measured"
    assert names(path.parent) == {path.name, f"{path.name}.lock"}


def test_two_names_of_one_file_are_one_cache_with_one_lock(path: Path, config: Config) -> None:
    link = path.with_name("link")
    link.symlink_to(path.name)
    build(link, config, b"measured")
    assert link.is_symlink()
    assert path.read_bytes() == b"measured"
    assert names(path.parent) == {path.name, link.name, f"{path.name}.lock"}


def _merge_often(path: Path, who: int) -> None:
    for number in range(MERGES):
        build(path, Config(), f"{who}.{number}".encode())


def test_processes_that_merge_at_the_same_moments_lose_nothing(path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_merge_often, args=(path, who)) for who in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(DEADLINE_S)
        assert worker.exitcode == 0
    expected = {f"{who}.{number}".encode() for who in range(3) for number in range(MERGES)}
    assert set(path.read_bytes().splitlines()) == expected


def test_a_file_is_used_as_it_is_and_a_folder_holds_one_for_each_version_and_gpu(
    tmp_path: Path,
) -> None:
    file = tmp_path / "mine"
    assert cache_path(file, "10.16.1.11", None) == file
    named = cache_path(tmp_path, "10.16.1.11", "NVIDIA_H200-sm90")
    assert named == tmp_path / "tensorrt-10.16.1.11-NVIDIA_H200-sm90.timing"
    with pytest.raises(CacheError, match="which GPU"):
        cache_path(tmp_path, "10.16.1.11", None)


@given(st.text())
def test_whatever_a_gpu_is_called_its_file_stays_in_the_folder(name: str) -> None:
    made = as_name(name)
    assert made
    assert made.isascii()
    assert not set(made) & set("/\0 ")
    assert made not in {".", ".."}
