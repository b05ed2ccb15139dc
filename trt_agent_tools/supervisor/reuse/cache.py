"""The kept engines: a folder with one folder an engine, bounded, the least recently used out first.

An entry appears and goes by one rename, so that a reader finds it whole or not at all, whatever dies in
between. Servers that share the folder change it in turn, under a lock; readers need none.
"""

import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from pydantic import TypeAdapter, ValidationError

from trt_agent_tools.model.manifest import FileDigest, Manifest
from trt_agent_tools.supervisor.file_digest import Interrupt, Stamp, digest
from trt_agent_tools.supervisor.reuse.durable import (
    WRITING,
    copy,
    link,
    sync_folder,
    write_durably,
)

MAX_ENTRIES = 1000
"""So many engines are kept, however small: each lookup reads the names of all."""

LOCK_S = 30.0
"""How long the turn to change the folder is waited for; another server copies an engine meanwhile."""

_ENGINE, _MANIFEST, _SEEN = "engine", "manifest.json", "seen.json"
_LOCK = ".lock"
_STAMP = TypeAdapter(Stamp)


@dataclass(frozen=True, slots=True)
class Entry:
    """A kept engine and the manifest of the build that made it.

    `seen` is the engine's stamp when it was last known to be what the manifest says.
    """

    folder: Path
    manifest: Manifest
    seen: Stamp | None

    @property
    def engine(self) -> Path:
        """The engine file."""
        return self.folder / _ENGINE

    def check(self, interrupt: Interrupt) -> Stamp | None:
        """Return the engine's stamp if it is what the manifest says, else None.

        It is read in full, unless its stamp is the one that it had when that was last known.

        Raises:
            OSError: it cannot be read.
            InterruptedWorkError: it is not wanted any more.
        """
        now = Stamp.of(self.engine.stat(follow_symlinks=False))
        if now == self.seen:
            return now
        found = digest(self.engine, interrupt)
        known = self.manifest.engine
        if found is None or (found.sha256, found.stamp.bytes) != (known.sha256, known.bytes):
            return None
        return found.stamp

    def used(self, verified: Stamp) -> None:
        """Note that it was used now. `verified` is its stamp when it was known to be right.

        Raises:
            OSError: that cannot be noted.
        """
        now = Stamp.of(self.engine.stat(follow_symlinks=False))
        if now.is_only_linked(verified):
            self._write_seen(now)

    def _write_seen(self, stamp: Stamp) -> None:
        partial = self.folder / f"{_SEEN}.{secrets.token_hex(4)}"
        # Not fsynced: an older stamp, or half of one, makes the engine be read in full.
        partial.write_bytes(_STAMP.dump_json(stamp))
        partial.replace(self.folder / _SEEN)


class EngineCache:
    """The folder. Every method touches the disk: call it in a thread."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes

    def has_any(self, key: str) -> bool:
        """Whether an engine of this build key is kept, of whatever model.

        Raises:
            OSError: the folder cannot be read.
        """
        return any(name.startswith(f"{key}-") for name in self._names())

    def find(self, key: str, model: str) -> list[Entry]:
        """Return the engines of a build key and a model's digest, one for each set of sidecars.

        Raises:
            OSError: an entry is there and cannot be read.
        """
        names = [name for name in self._names() if name.startswith(f"{key}-{model}-")]
        found = (self._read(self._folder / name) for name in names)
        return [entry for entry in found if entry is not None]

    def entries(self) -> list[Entry]:
        """Return all, the most recently used first.

        Raises:
            OSError: they cannot be read.
        """
        found = [(_last_used(path), self._read(path)) for path in self._paths()]
        found.sort(key=lambda each: -each[0])
        return [entry for _, entry in found if entry is not None]

    def add(
        self, key: str, manifest: Manifest, verified: Stamp | None, interrupt: Interrupt
    ) -> bool:
        """Keep the engine that `manifest` tells of; return whether it is kept.

        `verified` is the engine's stamp when it was last known to be right. An entry of the same key is
        replaced: the newest engine counts. One that is larger than the whole cache may be is not kept.

        Raises:
            OSError: it cannot be kept, also as other servers change the folder all the time.
            InterruptedWorkError: it is not wanted any more.
        """
        if manifest.engine.bytes > self._limit_bytes:
            return False
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._turn():
            made = self._folder / f".new.{secrets.token_hex(8)}"
            made.mkdir(mode=0o700)
            try:
                if not _fill(made, manifest, verified, interrupt):
                    return False
                place = self._folder / _name(key, manifest)
                self._remove(place)
                made.rename(place)
                sync_folder(self._folder)
            finally:
                shutil.rmtree(made, ignore_errors=True)
            self._make_room(place)
        return True

    def throw_out(self, entry: Entry) -> None:
        """Remove an entry that is not what it says.

        Raises:
            OSError: it cannot be removed, also as other servers change the folder all the time.
        """
        with self._turn():
            self._remove(entry.folder)

    def clear(self) -> tuple[int, int]:
        """Remove everything; return how many engines that were, and their bytes.

        Raises:
            OSError: something cannot be removed, also as other servers change the folder all the time.
        """
        if not self._folder.is_dir():
            return 0, 0
        with self._turn():
            paths = self._paths()
            size = sum(map(_engine_bytes, paths))
            for path in paths:
                self._remove(path)
            self._sweep()
        return len(paths), size

    def sweep(self) -> None:
        """Remove what a server that died in a change has left. Cut to size, too: it may be a new one.

        Raises:
            OSError: something cannot be removed, also as other servers change the folder all the time.
        """
        if self._folder.is_dir():
            with self._turn():
                self._sweep()
                self._make_room(None)

    def _sweep(self) -> None:
        for path in self._folder.iterdir():
            if path.name.startswith((".new.", ".old.")):
                shutil.rmtree(path)

    def _make_room(self, kept: Path | None) -> None:
        """Remove the least recently used ones, never `kept`, until the rest is within its bounds."""
        by_use = sorted((path for path in self._paths() if path != kept), key=_last_used)
        sizes = {path: _engine_bytes(path) for path in by_use}
        total = sum(sizes.values()) + (0 if kept is None else _engine_bytes(kept))
        number = len(by_use) + (kept is not None)
        for path in by_use:
            if total <= self._limit_bytes and number <= MAX_ENTRIES:
                return
            self._remove(path)
            total -= sizes[path]
            number -= 1

    def _remove(self, path: Path) -> None:
        gone = self._folder / f".old.{secrets.token_hex(8)}"
        try:
            path.rename(gone)
        except FileNotFoundError:
            return
        shutil.rmtree(gone)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        # Its `Timeout` is an OSError.
        with FileLock(self._folder / _LOCK, timeout=LOCK_S, mode=0o600):
            yield

    def _names(self) -> list[str]:
        try:
            return [path.name for path in self._folder.iterdir() if path.name[0] != "."]
        except FileNotFoundError:
            return []

    def _paths(self) -> list[Path]:
        return [self._folder / name for name in self._names()]

    def _read(self, folder: Path) -> Entry | None:
        try:
            manifest = Manifest.model_validate_json((folder / _MANIFEST).read_bytes())
        except (FileNotFoundError, NotADirectoryError, ValidationError):
            # Gone meanwhile, or nothing of ours.
            return None
        seen = None
        with suppress(FileNotFoundError, ValidationError):
            seen = _STAMP.validate_json((folder / _SEEN).read_bytes())
        return Entry(folder, manifest, seen)


def sidecar_name(manifest: Manifest, sidecar: FileDigest) -> str:
    """Return a sidecar's path from the model's folder: the model's bytes name it, wherever they are.

    Raises:
        ValueError: it is outside that folder.
    """
    return str(Path(sidecar.path).relative_to(Path(manifest.model.path).parent))


def _name(key: str, manifest: Manifest) -> str:
    sidecars = hashlib.sha256()
    for sidecar in manifest.sidecars:
        sidecars.update(f"{sidecar.sha256} {sidecar_name(manifest, sidecar)}\0".encode())
    return f"{key}-{manifest.model.sha256}-{sidecars.hexdigest()}"


def _fill(folder: Path, manifest: Manifest, verified: Stamp | None, interrupt: Interrupt) -> bool:
    """Write an entry's files; return whether the engine is there, and still the one that was made."""
    engine = folder / _ENGINE
    seen = None
    source = Path(manifest.engine.path)
    if link(lambda: os.link(source, engine, follow_symlinks=False)):
        status = engine.stat(follow_symlinks=False)
        now = Stamp.of(status)
        if not stat.S_ISREG(status.st_mode) or now.bytes != manifest.engine.bytes:
            return False
        if verified is not None and now.is_only_linked(verified):
            seen = now
    else:
        if copy(source, os.open(engine, WRITING, 0o600), interrupt) != manifest.engine.sha256:
            return False
        seen = Stamp.of(engine.stat())
    # Not linked: whoever can write to the output's folder could change both as one.
    write_durably(os.open(folder / _MANIFEST, WRITING, 0o600), manifest.model_dump_json().encode())
    if seen is not None:
        (folder / _SEEN).write_bytes(_STAMP.dump_json(seen))
    sync_folder(folder)
    return True


def _last_used(folder: Path) -> int:
    """Return when an entry was last used, in nanoseconds; one that is not whole goes first."""
    for name in (_SEEN, _MANIFEST):
        with suppress(OSError):
            return (folder / name).stat().st_mtime_ns
    return 0


def last_used(entry: Entry) -> float:
    """Return when an entry was last used, in seconds since the epoch."""
    return _last_used(entry.folder) / 1e9


def _engine_bytes(folder: Path) -> int:
    with suppress(OSError):
        return (folder / _ENGINE).stat(follow_symlinks=False).st_size
    return 0
