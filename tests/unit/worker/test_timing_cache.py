"""The timing cache file, over a recorded stand-in: the library that has one cannot run without a GPU."""

from pathlib import Path

import pytest

from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.events import JsonValue
from trt_agent_tools.worker.faults import BuildFault
from trt_agent_tools.worker.library_types import IHostMemory, ITimingCache
from trt_agent_tools.worker.timing_cache import save_timing_cache, use_timing_cache


class Cache:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def serialize(self) -> IHostMemory:
        return memoryview(self.data)


class Config:
    """Answers as `IBuilderConfig` does, and keeps what it was given."""

    def __init__(self, *, fits: bool = True, readable: bool = True) -> None:
        self.fits = fits
        self.readable = readable
        self.given: bytes | None = None
        self.ignored_mismatch: bool | None = None
        self.cache: ITimingCache | None = None

    def create_timing_cache(self, serialized_timing_cache: bytes) -> ITimingCache | None:
        self.given = serialized_timing_cache
        return Cache(serialized_timing_cache) if self.readable else None

    def set_timing_cache(self, cache: ITimingCache, ignore_mismatch: bool) -> bool:
        self.ignored_mismatch = ignore_mismatch
        if self.fits:
            self.cache = cache
        return self.fits

    def get_timing_cache(self) -> ITimingCache | None:
        return self.cache


def unreported(name: str, requested: JsonValue, effective: JsonValue) -> None:
    pytest.fail(f"{name} was reported: {requested}, {effective}")


def test_the_first_build_starts_cold_and_leaves_a_cache(tmp_path: Path) -> None:
    path = tmp_path / "timing.cache"
    config = Config()
    applied: list[tuple[str, JsonValue, JsonValue]] = []
    use_timing_cache(config, path, lambda *told: applied.append(told))
    assert config.given == b""
    assert applied == [("timing_cache", str(path), str(path))]
    config.cache = Cache(b"measured")
    save_timing_cache(config, path)
    assert path.read_bytes() == b"measured"
    assert list(tmp_path.iterdir()) == [path]


def test_the_next_build_starts_from_the_cache_and_never_ignores_a_mismatch(tmp_path: Path) -> None:
    path = tmp_path / "timing.cache"
    path.write_bytes(b"measured")
    config = Config()
    use_timing_cache(config, path, lambda *_: None)
    assert config.given == b"measured"
    assert config.ignored_mismatch is False


@pytest.mark.parametrize("config", [Config(fits=False), Config(readable=False)])
def test_a_cache_of_another_version_or_gpu_is_refused_and_left_as_it_is(
    tmp_path: Path, config: Config
) -> None:
    path = tmp_path / "timing.cache"
    path.write_bytes(b"another GPU's")
    with pytest.raises(BuildFault) as raised:
        use_timing_cache(config, path, unreported, lambda: "the header does not match")
    assert raised.value.info.code is ErrorCode.UNSUPPORTED_OPTION
    assert "another version of TensorRT or another GPU" in raised.value.info.message
    assert "the header does not match" in raised.value.info.hint
    assert path.read_bytes() == b"another GPU's"


def test_a_folder_that_is_not_there_is_told_before_the_build(tmp_path: Path) -> None:
    with pytest.raises(BuildFault) as raised:
        use_timing_cache(Config(), tmp_path / "none" / "timing.cache", unreported)
    assert raised.value.info.code is ErrorCode.OUTPUT_FOLDER_MISSING


def test_a_cache_that_cannot_be_read_is_told_before_the_build(tmp_path: Path) -> None:
    with pytest.raises(BuildFault) as raised:
        use_timing_cache(Config(), tmp_path, unreported)
    assert raised.value.info.code is ErrorCode.INVALID_ARGUMENT


def test_a_cache_that_cannot_be_saved_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "timing.cache"
    path.mkdir()
    config = Config()
    config.cache = Cache(b"measured")
    with pytest.raises(BuildFault) as raised:
        save_timing_cache(config, path)
    assert raised.value.info.code is ErrorCode.OUTPUT_NOT_WRITABLE
    assert list(tmp_path.iterdir()) == [path]


def test_without_a_cache_in_use_nothing_is_saved(tmp_path: Path) -> None:
    path = tmp_path / "timing.cache"
    save_timing_cache(Config(), path)
    assert not path.exists()
