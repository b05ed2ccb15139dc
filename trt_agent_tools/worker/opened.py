"""The model and the files beside it, each opened once: what is read is what was judged.

Whoever can write to the roots can exchange a folder for a link at any moment, so a path that was judged
may lead elsewhere when it is used next. An open file stays the one that it is: the kernel says where it
lies, and everything that is read of it is read through its descriptor.
"""

import errno
import mmap
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import Self

from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.request import BuildOrder, InspectOrder
from trt_agent_tools.worker.faults import BuildFault
from trt_agent_tools.worker.judged import is_gone, leads_out, was_replaced

_DELETED = " (deleted)"
_NO_DESCRIPTOR_LEFT = {errno.EMFILE, errno.ENFILE}


class OutsideError(Exception):
    """A path leads to a file that is in none of the roots."""


class NoFileError(Exception):
    """A path leads to no regular file."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """What the file system says of a file. Whoever writes to it changes one of these."""

    device: int
    inode: int
    bytes: int
    mtime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        """Return the stamp in a status. Without its ctime: a link more makes no other file."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """A regular file inside the roots, open for reading; `path` led to it, and may by now lead elsewhere.

    `stamp` is as the file was when it was opened. Threads may read it at the same time.
    """

    path: Path
    descriptor: int
    stamp: Stamp

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.name

    @property
    def itself(self) -> Path:
        """A path that leads to this very file in this process, for as long as it is open."""
        return _by_descriptor(self.descriptor)

    def map(self) -> mmap.mmap:
        """Return its content as it was when it was opened, mapped to be read.

        Raises:
            OSError: it cannot be mapped: it is empty or was cut short meanwhile, for example.
        """
        try:
            return mmap.mmap(self.descriptor, self.stamp.bytes, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise OSError(errno.ESTALE, "it is shorter than it was, or empty") from error

    def chunks(self, size: int) -> Iterator[bytes]:
        """Yield its content, at most `size` bytes at a time; no more of it than it had when it was opened.

        Raises:
            OSError: it cannot be read.
        """
        done = 0
        # One that grows as fast as it is read has no end, and is found out as changed anyway.
        while (wanted := min(size, self.stamp.bytes - done)) > 0 and (
            chunk := os.pread(self.descriptor, wanted, done)
        ):
            yield chunk
            done += len(chunk)

    def is_at(self, path: Path) -> bool:
        """Whether `path` leads to this very file.

        Raises:
            OSError: there is something at the path, and it cannot be told what.
        """
        try:
            return os.path.samestat(path.stat(), os.fstat(self.descriptor))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def is_unchanged(self) -> bool:
        """Whether it is as it was when it was opened, and its path leads to it.

        The path tells nothing of what was read here; TensorRT opens it by itself.
        """
        try:
            return all(
                Stamp.of(status) == self.stamp
                for status in (os.fstat(self.descriptor), self.path.stat())
            )
        except OSError:
            return False


def check_unchanged(files: Sequence[OpenedFile]) -> None:
    """Judge whether files are as they were when they were opened.

    Raises:
        BuildFault: MODEL_CHANGED, one is not.
    """
    changed = [file.name for file in files if not file.is_unchanged()]
    if changed:
        raise BuildFault(
            ErrorCode.MODEL_CHANGED,
            f"changed on disk while it was read: {', '.join(changed)}",
            "Try again when nothing writes to it.",
            {"files": changed},
        )


class OpenedModel:
    """A model's file and its folder, open, and every file that was opened beside it.

    Only regular files inside `roots` are opened for reading. `identity` is the device and inode that the
    model had when it was judged, if it was.

    Raises:
        BuildFault: MODEL_CHANGED, another file is there now; OUTSIDE_ROOTS, it leads out of the roots;
            MODEL_UNREADABLE.
    """

    def __init__(
        self, path: Path, roots: Sequence[Path], identity: tuple[int, int] | None = None
    ) -> None:
        self.path = path
        self.roots = tuple(roots)
        self._descriptors: list[int] = []
        try:
            self.file = self._open_model(identity)
        except BaseException:  # also an interrupt: nobody else has the descriptors to close
            self.close()
            raise

    @classmethod
    def of(cls, order: BuildOrder | InspectOrder) -> Self:
        """Open the model of an order. Raises as the class does."""
        return cls(Path(order.model), list(map(Path, order.roots)), order.model_identity)

    def open_beside(self, name: str) -> OpenedFile:
        """Open the file that `name` leads to from the model's folder.

        Raises:
            OutsideError: it is in none of the roots.
            NoFileError: there is no regular file.
            OSError: it may not be read, or this process may open no more files.
        """
        return self._open(name, self.path.parent / name)

    def close(self) -> None:
        """Close every file. Nothing may be reading them any more."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def __enter__(self) -> Self:
        """Return itself; the end of the block closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close every file."""
        self.close()

    def _open_model(self, identity: tuple[int, int] | None) -> OpenedFile:
        path = self.path
        try:
            # Links on the way to the folder are followed once for the model and all that is beside it.
            self._folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self._descriptors.append(self._folder)
            file = self._open(path.name, path)
        except OutsideError as error:
            raise leads_out(path) from error
        except (NoFileError, FileNotFoundError, NotADirectoryError) as error:
            raise is_gone(path) from error
        except OSError as error:
            raise unreadable(path, error) from error
        if identity not in {None, (file.stamp.device, file.stamp.inode)}:
            raise was_replaced(path)
        return file

    def _open(self, name: str, path: Path) -> OpenedFile:
        try:
            # Found, and not opened yet: to open a pipe or a device may block, or set something off.
            found = os.open(name, os.O_PATH | os.O_CLOEXEC, dir_fd=self._folder)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in _NO_DESCRIPTOR_LEFT:
                raise
            # Not there, a loop of links, too long a name, a folder that may not be searched, NUL.
            raise NoFileError from error
        try:
            self._judge(found)
            # The same file, whatever its path leads to by now.
            descriptor = os.open(_by_descriptor(found), os.O_RDONLY | os.O_CLOEXEC)
        finally:
            os.close(found)
        self._descriptors.append(descriptor)
        return OpenedFile(path, descriptor, Stamp.of(os.fstat(descriptor)))

    def _judge(self, descriptor: int) -> None:
        try:
            place = _by_descriptor(descriptor).readlink()
        except OSError as error:
            # Its path is too long for the kernel to tell: where it lies is not known.
            raise OutsideError from error
        if not any(place.is_relative_to(root) for root in self.roots):
            raise OutsideError
        if place.name.endswith(_DELETED) or not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NoFileError


def _by_descriptor(descriptor: int) -> Path:
    # A link that the kernel follows to the open file, not by the name that it shows.
    return Path(f"/proc/self/fd/{descriptor}")


def unreadable(path: Path, error: OSError) -> BuildFault:
    """Return the fault of a file that cannot be read."""
    return BuildFault(
        ErrorCode.MODEL_UNREADABLE,
        f"{path.name} cannot be read: {error.strerror}",
        "Check that the server may read it, and keep it in place while it is read.",
    )
