"""The public keys of an OAuth issuer: fetched when they are needed, kept for a while."""

import json
from collections.abc import Iterable
from urllib.parse import urlsplit

import anyio
import httpx2
import jwt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trt_agent_tools.api.authentication import UnjudgedError

FETCH_S = 10.0
"""Finding and fetching the keys takes no longer."""

KEEP_S = 600.0
"""Keys are fetched again after so long."""

AGAIN_S = 30.0
"""No sooner than this for a key that was not among them, or after a failure: whoever makes tokens up
cannot have this server call its issuer all the time."""

MAX_ANSWER_BYTES = 512 * 1024
"""A longer answer is none that an issuer gives."""


class KeysError(UnjudgedError):
    """The issuer's keys cannot be had."""


class _Metadata(BaseModel):
    model_config = ConfigDict(frozen=True)

    issuer: str
    jwks_uri: str


class _Keys(BaseModel):
    model_config = ConfigDict(frozen=True)

    keys: list[dict[str, object]] = Field(max_length=1000)


class IssuerKeys:
    """Finds the key that signed a token. One fetch at a time, whoever waits for it."""

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer
        self._keys: list[jwt.PyJWK] = []
        self._fetched_at = float("-inf")
        self._asked_at = float("-inf")
        self._problem = ""
        self._turn = anyio.Lock()

    async def find(self, key_id: str | None) -> jwt.PyJWK | None:
        """Return the key of this id, or the only one for a token that names none.

        Raises:
            KeysError: the issuer did not give its keys, and those of before are too old.
        """
        # Whoever has a good token does not wait for what a made-up one lets be fetched.
        if found := self._fresh(key_id):
            return found
        async with self._turn:
            now = anyio.current_time()
            found = self._fresh(key_id)
            if found is None and now >= self._asked_at + AGAIN_S:
                self._asked_at = now
                await self._fetch()
                found = None if self._problem else self._among(key_id)
        if self._problem and found is None:
            raise KeysError(self._problem)
        return found

    def _fresh(self, key_id: str | None) -> jwt.PyJWK | None:
        is_fresh = anyio.current_time() < self._fetched_at + KEEP_S
        return self._among(key_id) if is_fresh else None

    def _among(self, key_id: str | None) -> jwt.PyJWK | None:
        if key_id is None:
            return self._keys[0] if len(self._keys) == 1 else None
        return next((key for key in self._keys if key.key_id == key_id), None)

    async def _fetch(self) -> None:
        try:
            with anyio.fail_after(FETCH_S):
                async with httpx2.AsyncClient(timeout=FETCH_S) as client:
                    uri = await self._jwks_uri(client)
                    keys = _Keys.model_validate_json(await _get(client, uri))
        except (
            TimeoutError,
            httpx2.HTTPError,
            httpx2.InvalidURL,
            ValidationError,
            KeysError,
        ) as error:
            # What was fetched before is kept for its time, and no longer.
            self._problem = f"the keys of {self._issuer} cannot be had: {_said(error)}"
            return
        self._keys = list(_usable(keys.keys))
        self._fetched_at = anyio.current_time()
        self._problem = "" if self._keys else f"{self._issuer} has no keys that are of use here"

    async def _jwks_uri(self, client: httpx2.AsyncClient) -> str:
        said: Exception | None = None
        for url in metadata_urls(self._issuer):
            try:
                metadata = _Metadata.model_validate_json(await _get(client, url))
            except (httpx2.HTTPError, ValidationError, KeysError) as error:
                said = error
                continue
            if metadata.issuer != self._issuer:
                raise KeysError(f"{url} is the metadata of another issuer")
            if not is_safe(metadata.jwks_uri):
                raise KeysError(f"{url} names keys that are not behind https")
            return metadata.jwks_uri
        raise KeysError(f"it has no metadata: {_said(said)}")


def metadata_urls(issuer: str) -> list[str]:
    """Return where an issuer tells about itself: by OpenID Connect, and by RFC 8414."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    base = f"{parts.scheme}://{parts.netloc}"
    return [
        f"{base}{path}/.well-known/openid-configuration",
        f"{base}/.well-known/oauth-authorization-server{path}",
    ]


def is_safe(url: str) -> bool:
    """Whether nobody on the way can answer in an issuer's place."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (
        parts.scheme == "http" and parts.hostname in {"127.0.0.1", "::1", "localhost"}
    )


async def _get(client: httpx2.AsyncClient, url: str) -> bytes:
    body = b""
    async with client.stream("GET", url, headers={"Accept": "application/json"}) as response:
        if response.status_code != httpx2.codes.OK:
            raise KeysError(f"{url} answers with {response.status_code}")
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_ANSWER_BYTES:
                raise KeysError(f"{url} answers with more than {MAX_ANSWER_BYTES} bytes")
    return body


def _usable(keys: Iterable[dict[str, object]]) -> Iterable[jwt.PyJWK]:
    """Yield the public keys that sign; an issuer may have others."""
    for key in keys:
        if key.get("kty") == "oct" or key.get("use", "sig") != "sig":
            continue
        try:
            yield jwt.PyJWK.from_json(json.dumps(key))
        except (jwt.PyJWTError, ValueError, TypeError):
            # Of a kind that is not known here: a token that it signed is refused.
            continue


def _said(error: Exception | None) -> str:
    return str(error) or type(error).__name__
