"""The tokens that callers over TCP show: a file of their hashes in the state folder."""

import hashlib
import hmac
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Literal

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trt_agent_tools.api.authentication import UnjudgedError
from trt_agent_tools.api.place import BEING_MADE, make_private
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.request import Label
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.supervisor.principals import Caller

TOKENS = "tokens.json"
LOCK = "tokens.lock"

PREFIX = "tat_"
"""What every token begins with, so that scanners of leaked secrets find it."""

MAX_FILE_BYTES = 4 * 1024 * 1024
"""A larger file is no file of tokens."""

LOCK_S = 5.0
"""Whoever else changes the file is done within this."""

_SECRET_BYTES = 32
_TOKEN = re.compile(rf"{PREFIX}([0-9a-f]{{12}})_([A-Za-z0-9_-]{{43}})")
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH

PrincipalName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$")]
"""A name as the operator gives it."""


class TokenRecord(BaseModel):
    """What is kept of a token. `sha256` is of its secret, which has 256 bits and needs no salt."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(pattern=r"^[0-9a-f]{12}$")
    principal: PrincipalName
    policies: list[Annotated[str, Field(min_length=1, max_length=64)]]
    label: Label | None = None
    created_at: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1] = 1
    tokens: list[TokenRecord] = []


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token right after it was made: `text` is told once and kept nowhere."""

    record: TokenRecord
    text: str


class TokensError(UnjudgedError):
    """The file of tokens is there and cannot be used."""


class Tokens:
    """Reads the file again whenever it has changed."""

    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / TOKENS
        self._seen: tuple[int, ...] | None = None
        self._known: dict[str, TokenRecord] = {}

    def all(self) -> list[TokenRecord]:
        """Return every token, in the order in which they were made.

        Raises:
            TokensError: the file cannot be used.
        """
        self._look()
        return list(self._known.values())

    async def caller(self, token: str) -> Caller | None:
        """Return whose token it is; None if it is not known, or not any more.

        Raises:
            TokensError: the file cannot be used.
        """
        self._look()
        match = _TOKEN.fullmatch(token)
        record = self._known.get(match[1]) if match else None
        if match is None or record is None:
            return None
        if not hmac.compare_digest(_hash(match[2]), record.sha256):
            return None
        return Caller(principal_of(record.principal), tuple(record.policies))

    def _look(self) -> None:
        try:
            found = self.path.lstat()
        except FileNotFoundError:
            self._seen, self._known = None, {}
            return
        except OSError as error:
            raise TokensError(f"{self.path} cannot be used: {error}") from error
        identity = (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)
        if identity != self._seen:
            # Forgotten first: what cannot be read lets nobody in.
            self._seen, self._known = None, {}
            self._known = {record.id: record for record in _read(self.path).tokens}
            self._seen = identity


def principal_of(name: str) -> str:
    """Return the principal of a token's name: no name makes it the local user's or an issuer's."""
    return f"token:{name}"


def add_token(
    state_dir: Path, principal: str, *, policies: list[str], label: str | None = None
) -> NewToken:
    """Make a token and note its hash.

    Raises:
        Refusal: the name, a policy's name or the label is not valid, or the file cannot be used.
    """
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    try:
        record = TokenRecord(
            id=secrets.token_hex(6),
            principal=principal,
            policies=policies,
            label=label,
            created_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            sha256=_hash(secret),
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"{first['loc'][0]}: {first['msg']}",
            "A principal has up to 64 letters, digits and . _ @ -, the first a letter or digit.",
        ) from error
    with _changing(state_dir) as path:
        _write(path, [*_read_or_refuse(path), record])
    return NewToken(record, f"{PREFIX}{record.id}_{secret}")


def revoke_token(state_dir: Path, token_id: str) -> TokenRecord:
    """Forget a token: a server that runs lets it in no more from its next request on.

    Raises:
        Refusal: there is none of this id, or the file cannot be used.
    """
    with _changing(state_dir) as path:
        records = _read_or_refuse(path)
        found = [record for record in records if record.id == token_id]
        if not found:
            raise Refusal(
                ErrorCode.INVALID_ARGUMENT,
                f"there is no token {one_line(token_id, 60)!r}",
                "`trt-agent-tools token list` shows the ids.",
                {"valid": [record.id for record in records]},
            )
        _write(path, [record for record in records if record.id != token_id])
    return found[0]


def list_tokens(state_dir: Path) -> list[TokenRecord]:
    """Return every token.

    Raises:
        Refusal: the file cannot be used.
    """
    return _read_or_refuse(state_dir / TOKENS)


def unusable(error: Exception) -> Refusal:
    """Return the refusal of an operator's call where the file of tokens cannot be used."""
    return Refusal(
        ErrorCode.INVALID_ARGUMENT,
        str(error),
        "Put back a copy of it, or remove it and make new tokens. Nobody is let in until then.",
    )


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


@contextmanager
def _changing(state_dir: Path) -> Iterator[Path]:
    """Hold the lock of a state folder's tokens; give their path."""
    lock = FileLock(state_dir / LOCK, mode=0o600)
    try:
        make_private(state_dir)
        lock.acquire(timeout=LOCK_S)
    except (OSError, Timeout) as error:
        raise unusable(error) from error
    try:
        yield state_dir / TOKENS
    finally:
        lock.release()


def _read_or_refuse(path: Path) -> list[TokenRecord]:
    try:
        return _read(path).tokens if os.path.lexists(path) else []
    except TokensError as error:
        raise unusable(error) from error


def _read(path: Path) -> _File:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise TokensError(f"{path} is no regular file")
            if found.st_uid != os.geteuid():
                raise TokensError(f"{path} belongs to another user")
            if found.st_mode & _OTHERS_WRITE:
                raise TokensError(f"others may write to {path}; take that away: chmod 600 {path}")
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise TokensError(f"{path} cannot be read: {error}") from error
    if len(data) > MAX_FILE_BYTES:
        raise TokensError(f"{path} has more than {MAX_FILE_BYTES} bytes")
    try:
        return _File.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise TokensError(f"{path} is damaged: {place or 'file'}: {first['msg']}") from error


def _write(path: Path, records: list[TokenRecord]) -> None:
    content = json.dumps(_File(tokens=records).model_dump(mode="json"), indent=1) + "\n"
    partial = path.with_name(path.name + BEING_MADE)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(partial, flags, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, 0o600)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        partial.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise unusable(error) from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
