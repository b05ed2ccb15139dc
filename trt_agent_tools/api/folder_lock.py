"""The locks that make one supervisor the only one of its state folder, and one front end start it."""

import os
from pathlib import Path

from filelock import FileLock, Timeout


class FolderLock:
    """Held by a living process alone: the kernel drops it when its holder dies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = FileLock(self._path, mode=0o600)
        self._file: tuple[int, int] | None = None

    def take(self) -> bool:
        """Take the lock, and return whether it was free.

        Raises:
            OSError: the file cannot be made.
        """
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            return False
        self._file = self._identity()
        return True

    def hold(self) -> bool:
        """Return whether the lock is held, taking it anew where its file was taken away.

        Raises:
            OSError: the file cannot be made.
        """
        if self._file is not None and self._identity() == self._file:
            return True
        # A lock on a file that nobody finds keeps nobody out.
        self._lock.release(force=True)
        return self.take()

    def release(self) -> None:
        """Let another process have it. Without holding it this does nothing."""
        self._lock.release(force=True)

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = os.lstat(self._path)
        except OSError:
            return None
        return found.st_dev, found.st_ino
