"""The timing cache of classic TensorRT: used if it fits, kept up to date by all builds that share it.

A cache is bound to the exact version and GPU that made it. Engines built with one and the same cache
need not be identical. Nothing that is wrong with a cache ends a build: it takes longer without.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

from filelock import FileLock, Timeout

from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.worker.gpu_identity import as_name
from trt_agent_tools.worker.library_types import ITimingCache, TimingCacheConfig
from trt_agent_tools.worker.settings import LastLog

LOCK_S = 10.0
"""How long a build waits for others to read or merge: each takes them well under a second."""

MAX_BYTES = 1 << 30
"""No cache is larger: what is claims to be one, and would fill the memory."""

_MAX_WORDS = 300
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class CacheError(Exception):
    """What is wrong with a cache, in a clause."""


class CacheState(str, Enum):
    """What a cache is to a build that begins."""

    COLD = "cold"
    """There was none yet: the build begins it."""
    WARM = "warm"
    """The build measures only what the cache lacks."""
    REFUSED = "refused"
    """It does not fit, or cannot be read: it is left as it is, and the build goes on without."""


def cache_path(asked: Path, version: str, gpu: str | None) -> Path:
    """Return the file to use: `asked` itself, or in a folder the one of this version and this GPU.

    Raises:
        CacheError: it is a folder, and which GPU this is is not known.
    """
    # Not by `Path.is_dir`, which raises where a folder above it may not be looked into.
    if not os.path.isdir(asked):  # noqa: PTH112
        return asked
    if gpu is None:
        raise CacheError("the driver does not tell which GPU this is; name a file, not a folder")
    return asked / f"tensorrt-{as_name(version)}-{gpu}.timing"


class TimingCache:
    """The cache of one build: `load` before its builder runs, `merge` once that has returned."""

    def __init__(self, config: TimingCacheConfig, path: Path) -> None:
        self._config = config
        self._path = path.resolve()
        self._loaded = b""
        self.state = CacheState.REFUSED

    @property
    def path(self) -> Path:
        """The file, free of symbolic links."""
        return self._path

    def load(self, last_log: LastLog | None = None) -> None:
        """Give the config what is in the file, or a cold cache if there is no file yet.

        Raises:
            CacheError: it was refused, and why; with the library's own last words if it had any.
        """
        try:
            with self._locked():
                data = self._read()
        except OSError as error:
            raise CacheError(f"it cannot be read: {_reason(error)}") from error
        before = last_log() if last_log else None
        try:
            self._take(data)
        except CacheError as error:
            words = last_log() if last_log else None
            if words is None or words == before:
                raise
            raise CacheError(f"{error} (its log says: {one_line(words, _MAX_WORDS)})") from error
        except Exception as error:  # pybind11 turns C++ exceptions into many types
            raise CacheError(_objection(error)) from error
        self._loaded = data
        self.state = CacheState.WARM if data else CacheState.COLD

    def _take(self, data: bytes) -> None:
        cache = self._create(data)
        if not self._config.set_timing_cache(cache, ignore_mismatch=False):
            raise CacheError("another version of TensorRT or another GPU made it")
        if self._config.get_timing_cache() is None:
            raise CacheError("the library did not keep it")

    def merge(self) -> None:
        """Add what the build measured to what is in the file by now; a refused one is left alone.

        At once and durably: whatever ends this process, a reader finds the file as before or merged.

        Raises:
            CacheError: that was not possible, and why; the file is as it was.
        """
        if self.state is CacheState.REFUSED:
            return
        try:
            with self._locked():
                self._merge()
        except OSError as error:
            advice = "; free some space" if error.errno in _NO_SPACE else ""
            raise CacheError(f"it cannot be written: {_reason(error)}{advice}") from error
        except CacheError:
            raise
        except Exception as error:  # as above
            raise CacheError(_objection(error)) from error

    def _merge(self) -> None:
        measured = self._config.get_timing_cache()
        if measured is None:
            return
        there = self._read()
        merged = measured
        # What this build began with is in what it measured: only what came meanwhile is merged.
        if there not in (b"", self._loaded):
            merged = self._create(there)
            if not merged.combine(measured, ignore_mismatch=False):
                raise CacheError("meanwhile another version of TensorRT or another GPU wrote it")
        data = memoryview(merged.serialize())
        if data != there:
            _replace(self._path, data)

    def _create(self, data: bytes) -> ITimingCache:
        cache = self._config.create_timing_cache(data)
        if cache is None:
            raise CacheError("it is damaged, or no timing cache")
        return cache

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # A file of its own, never removed: the cache's is replaced, and a lock on it with it.
        lock = FileLock(self._path.with_name(f"{self._path.name}.lock"))
        # Or the lock would make it: folders are the user's to make.
        if not self._path.parent.is_dir():
            raise CacheError("its folder does not exist")
        try:
            lock.acquire(timeout=LOCK_S)
        except Timeout as error:
            raise CacheError(f"others have held its lock for {LOCK_S:.0f} s") from error
        try:
            yield
        finally:
            lock.release()

    def _read(self) -> bytes:
        # Not blocking: who put a pipe there would hold the build up.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(self._path, flags)
        except FileNotFoundError:
            return b""
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise CacheError("it is no regular file")
            if status.st_size > MAX_BYTES:
                raise CacheError(f"it is larger than {MAX_BYTES >> 30} GiB")
            return file.read(MAX_BYTES)


def _replace(path: Path, data: memoryview) -> None:
    """Put `data` at `path`, whole or not at all, and on the disk. Only who holds the lock may."""
    # One name for all: what a killed process left behind is in nobody's way, and goes with the next.
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(partial, flags, 0o644), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__


def _objection(error: Exception) -> str:
    return one_line(f"{type(error).__name__}: {error}", _MAX_WORDS)
