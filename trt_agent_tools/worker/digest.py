"""Digests of the model and its sidecars, taken beside the build."""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.events import InputFile, InputsDigested
from trt_agent_tools.model.manifest import FileDigest
from trt_agent_tools.worker.faults import BuildFault

CHUNK_BYTES = 4 * 1024 * 1024
"""Read at a time: large, because each chunk takes Python's lock once."""

_NICE = 10

_MOST_TOLD = 100
"""So many files are told one by one."""

_JUDGED_AFTER_S = 0.5
"""After so long it is known how fast a file is read."""

_Stamp = tuple[int, int, int, int]


def _stamp(path: Path) -> _Stamp:
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def digest_file(path: Path) -> FileDigest:
    """Return the size and SHA-256 of a file.

    Raises:
        OSError: it cannot be read.
    """
    sha256 = hashlib.sha256()
    size = 0
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(CHUNK_BYTES):
            sha256.update(chunk)
            size += len(chunk)
    return FileDigest(path=str(path), bytes=size, sha256=sha256.hexdigest())


def digest_together(files: list[Path], seconds: float) -> str | None:
    """Return one SHA-256 over files, as `combined` has it; None if it is seen to take over `seconds`.

    Raises:
        OSError: a file cannot be read.
    """
    began = time.monotonic()
    total = sum(path.stat().st_size for path in files)
    done = 0
    digests = []
    for path in files:
        sha256 = hashlib.sha256()
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(CHUNK_BYTES):
                sha256.update(chunk)
                done += len(chunk)
                elapsed = time.monotonic() - began
                if elapsed > seconds or (
                    elapsed > _JUDGED_AFTER_S and elapsed * total > seconds * done
                ):
                    return None
        digests.append(sha256.hexdigest())
    return combined(digests)


def combined(digests: Sequence[str]) -> str:
    """Return one SHA-256 over files whose own are `digests`, the model's first.

    Of one file it is the file's own. Of several it is that of their digests, each in hexadecimal on a
    line: what `sha256sum FILES | cut -c-64 | sha256sum` prints.
    """
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(f"{digest}\n" for digest in digests).encode()).hexdigest()


def digested(at: float, digests: Sequence[FileDigest]) -> InputsDigested:
    """Return the event that tells of a build's inputs, the model first."""
    return InputsDigested(
        at=at,
        sha256=combined([digest.sha256 for digest in digests]),
        bytes=sum(digest.bytes for digest in digests),
        files=[InputFile(each.path, each.bytes, each.sha256) for each in digests[:_MOST_TOLD]],
        files_left_out=max(0, len(digests) - _MOST_TOLD),
    )


class Originals:
    """Files as they were when this was made: identity, size and time of change.

    Raises:
        BuildFault: a file is not there any more.
    """

    def __init__(self, files: list[Path]) -> None:
        try:
            self._before = {path: _stamp(path) for path in files}
        except OSError as error:
            raise _unreadable(error) from error

    def check(self) -> None:
        """Judge whether the files are still those.

        Raises:
            BuildFault: MODEL_CHANGED, one is not.
        """
        changed = [path.name for path, before in self._before.items() if _changed(path, before)]
        if changed:
            raise BuildFault(
                ErrorCode.MODEL_CHANGED,
                f"changed on disk while it was read: {', '.join(changed)}",
                "Try again when nothing writes to it.",
                {"files": changed},
            )


class InputDigests:
    """Digests files in a thread of its own while the build runs: hashing 1 GB takes a second or two.

    The files' identity, size and time of change are noted before the parser reads them and again
    after both are done, so that a file changed in between is found out. `done` is called with the
    digests once all are taken, in that thread.

    Raises:
        BuildFault: a file is not there any more.
    """

    def __init__(
        self, files: list[Path], done: Callable[[list[FileDigest]], None] | None = None
    ) -> None:
        self._files = files
        self._done = done
        self._originals = Originals(files)
        self._digests: list[FileDigest] = []
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="digests", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        # The build has the processor first; on Linux a thread has a priority of its own. A sandbox
        # may refuse this, and the digest is right all the same.
        with suppress(OSError):
            this = threading.get_native_id()
            nice = max(_NICE, os.getpriority(os.PRIO_PROCESS, this))
            os.setpriority(os.PRIO_PROCESS, this, nice)
        try:
            for path in self._files:
                self._digests.append(digest_file(path))
            if self._done:
                self._done(self._digests)
        except Exception as error:  # noqa: BLE001  (whatever it is, `wait` raises it in its own thread)
            self._error = error

    def wait(self) -> list[FileDigest]:
        """Return the digests in the order of the files.

        Raises:
            BuildFault: a file changed since the start, or could not be read.
        """
        self._thread.join()
        if isinstance(self._error, OSError):
            raise _unreadable(self._error) from self._error
        if self._error:
            raise self._error
        self._originals.check()
        return self._digests


def _changed(path: Path, before: _Stamp) -> bool:
    try:
        return _stamp(path) != before
    except OSError:
        return True


def _unreadable(error: OSError) -> BuildFault:
    return BuildFault(
        ErrorCode.MODEL_UNREADABLE,
        f"the model could not be read again for its digest: {error}",
        "Keep the model in place while it is built from.",
    )
