"""Digests of the model and its sidecars, taken beside the build."""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.events import InputFile, InputsDigested
from trt_agent_tools.model.manifest import FileDigest
from trt_agent_tools.worker.faults import BuildFault
from trt_agent_tools.worker.opened import OpenedFile, check_unchanged

CHUNK_BYTES = 4 * 1024 * 1024
"""Read at a time: large, because each chunk takes Python's lock once."""

_NICE = 10

_MOST_TOLD = 100
"""So many files are told one by one."""

_JUDGED_AFTER_S = 0.5
"""After so long it is known how fast a file is read."""


def digest_file(path: Path) -> FileDigest:
    """Return the size and SHA-256 of a file.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        return _digest(path, iter(partial(file.read, CHUNK_BYTES), b""))


def digest_opened(file: OpenedFile) -> FileDigest:
    """Return the size and SHA-256 of an open file, as it was when it was opened.

    Raises:
        OSError: it cannot be read.
    """
    return _digest(file.path, file.chunks(CHUNK_BYTES))


def _digest(path: Path, chunks: Iterable[bytes]) -> FileDigest:
    sha256 = hashlib.sha256()
    size = 0
    for chunk in chunks:
        sha256.update(chunk)
        size += len(chunk)
    return FileDigest(path=str(path), bytes=size, sha256=sha256.hexdigest())


def digest_together(files: Sequence[OpenedFile], seconds: float) -> str | None:
    """Return one SHA-256 over files, as `combined` has it; None if it is seen to take over `seconds`.

    Raises:
        OSError: a file cannot be read.
    """
    began = time.monotonic()
    total = sum(file.stamp.bytes for file in files)
    done = 0
    digests = []
    for file in files:
        sha256 = hashlib.sha256()
        for chunk in file.chunks(CHUNK_BYTES):
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


class InputDigests:
    """Digests files in a thread of its own while the build runs: hashing 1 GB takes a second or two.

    The files were opened before the parser reads them, and are judged by their stamps after both are
    done, so that a file changed in between is found out. `done` is called with the digests once all are
    taken, in that thread.
    """

    def __init__(
        self, files: list[OpenedFile], done: Callable[[list[FileDigest]], None] | None = None
    ) -> None:
        self._files = files
        self._done = done
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
            for file in self._files:
                self._digests.append(digest_opened(file))
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
        check_unchanged(self._files)
        return self._digests


def _unreadable(error: OSError) -> BuildFault:
    return BuildFault(
        ErrorCode.MODEL_UNREADABLE,
        f"the model could not be read again for its digest: {error}",
        "Keep the model in place while it is built from.",
    )
