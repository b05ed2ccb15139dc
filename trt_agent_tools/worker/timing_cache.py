"""The timing cache file of classic TensorRT: used if it fits, saved whether or not a build ends well.

A cache is bound to the exact version and GPU that made it. Engines built with one and the same
cache need not be identical.
"""

import errno
import os
import secrets
from pathlib import Path

from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.worker.faults import BuildFault
from trt_agent_tools.worker.library_types import TimingCacheConfig
from trt_agent_tools.worker.settings import LastLog, Report, said

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def use_timing_cache(
    config: TimingCacheConfig, path: Path, report: Report, last_log: LastLog | None = None
) -> None:
    """Give `config` the cache in `path`, or a cold one if there is no such file yet.

    Raises:
        BuildFault: UNSUPPORTED_OPTION, the cache is another version's or GPU's, or no cache;
            INVALID_ARGUMENT, the file cannot be read; OUTPUT_FOLDER_MISSING, nor could it be saved.
    """
    if not path.parent.is_dir():
        raise BuildFault(
            ErrorCode.OUTPUT_FOLDER_MISSING,
            f"the timing cache's folder {path.parent} does not exist",
            "Create the folder, or give another path.",
        )
    try:
        data = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise BuildFault(
            ErrorCode.INVALID_ARGUMENT,
            f"the timing cache {path} cannot be read: {error.strerror}",
            "Give the path of a timing cache file, or of one to be made.",
        ) from error
    cache = config.create_timing_cache(data)
    if cache is None or not config.set_timing_cache(cache, ignore_mismatch=False):
        words = last_log() if last_log else None
        raise BuildFault(
            ErrorCode.UNSUPPORTED_OPTION,
            f"the timing cache {path} was not taken: another version of TensorRT or another GPU "
            "made it, or it is damaged",
            "Use one cache file for each version and GPU; give another path to start a new one."
            f"{said(words)}",
        )
    used = config.get_timing_cache() is not None
    report("timing_cache", str(path), str(path) if used else None)


def save_timing_cache(config: TimingCacheConfig, path: Path) -> None:
    """Replace `path` by the cache as it is now, at once and durably. Worth it after a cancel too.

    Raises:
        BuildFault: DISK_FULL or OUTPUT_NOT_WRITABLE; what was at `path` before is still there.
    """
    cache = config.get_timing_cache()
    if cache is None:
        return
    try:
        _replace(path, memoryview(cache.serialize()))
    except OSError as error:
        full = error.errno in _NO_SPACE
        raise BuildFault(
            ErrorCode.DISK_FULL if full else ErrorCode.OUTPUT_NOT_WRITABLE,
            f"the timing cache {path} was not saved: {error.strerror}",
            "Free some space."
            if full
            else "Give a path in a folder that this server may write to.",
        ) from error


def _replace(path: Path, data: memoryview) -> None:
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(partial, flags, 0o644), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
