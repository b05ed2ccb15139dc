"""What every request over TCP passes before anything else sees it."""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from http import HTTPStatus

import anyio
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trt_agent_tools.api.addresses import Addresses
from trt_agent_tools.api.answers import refuse
from trt_agent_tools.api.authentication import Authenticator, ScopeMissingError, UnjudgedError
from trt_agent_tools.api.status import STATUS
from trt_agent_tools.api.strict import BodyLimit
from trt_agent_tools.model.errors import ErrorCode, ErrorInfo
from trt_agent_tools.supervisor.principals import LOCAL_CALLER, Caller

OPEN_PATHS = ("/healthz", "/readyz")
"""Need no token: who asks whether a server is well has none."""

MAX_TOKEN_BYTES = 8192
"""A longer one is no token."""

_CALLER = "caller"
_log = logging.getLogger(__name__)


def caller_of(request: HTTPConnection) -> Caller:
    """Return who asks, as the gate found out for this request.

    Raises:
        RuntimeError: the request came past the gate: a fault of this program, nobody is served.
    """
    caller = request.scope.get("state", {}).get(_CALLER)
    if not isinstance(caller, Caller):
        raise RuntimeError("a request has come past the gate")
    return caller


@dataclass(frozen=True, slots=True)
class Admission:
    """Who is let in.

    Without `authenticators` everybody is the local user: for a loopback address alone. `metadata_url`
    tells clients where tokens come from, `scope` what they must be good for. While a request lasts, its
    token is judged again every `again_s` seconds.
    """

    authenticators: Sequence[Authenticator] | None
    metadata_url: str | None = None
    scope: str | None = None
    again_s: float = 10.0


class Gate:
    """Checks `Host`, `Origin` and token, in this order, and then reads the body, bounded."""

    def __init__(
        self,
        app: ASGIApp,
        addresses: Addresses,
        admission: Admission,
        *,
        open_paths: Collection[str] = OPEN_PATHS,
    ) -> None:
        self._app = BodyLimit(app)
        self._open_paths = frozenset(open_paths)
        self._addresses = addresses
        self._admission = admission
        self._told = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            # The server is told to know nothing else.
            raise RuntimeError(f"{scope['type']} is not served")
        refusal = self._misaddressed(scope) or await self._unknown(scope)
        if refusal is not None:
            await _answer(refusal, scope, receive, send)
        elif self._admission.authenticators is None or scope["path"] in self._open_paths:
            await self._app(scope, receive, send)
        else:
            await self._serve_known(scope, receive, send)

    async def _serve_known(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request for as long as its token is good: a stream can last for hours."""
        begun = False
        refusal: _Refused | None = None

        async def note(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        async def judge_again() -> None:
            nonlocal refusal
            while refusal is None:
                await anyio.sleep(self._admission.again_s)
                refusal = await self._unknown(scope)
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(judge_again)
            await self._app(scope, receive, note)
            tasks.cancel_scope.cancel()
        if refusal is not None and not begun:
            await _answer(refusal, scope, receive, send)

    def _misaddressed(self, scope: Scope) -> "_Refused | None":
        if not self._addresses.takes_host(_values(scope, b"host")):
            return _Refused(
                ErrorInfo(
                    ErrorCode.INVALID_ARGUMENT,
                    "this server is not known by the name in the Host header",
                    "Its operator allows a name with --allow-host.",
                ),
                HTTPStatus.MISDIRECTED_REQUEST,
            )
        if not self._addresses.takes_origin(_values(scope, b"origin")):
            return _Refused(
                ErrorInfo(
                    ErrorCode.INVALID_ARGUMENT,
                    "web pages of this origin may not use this server",
                    "Its operator allows an origin with --allow-origin.",
                ),
                HTTPStatus.FORBIDDEN,
            )
        return None

    async def _unknown(self, scope: Scope) -> "_Refused | None":
        """Find out who asks and note it; return the refusal of one that is not known."""
        state = scope.setdefault("state", {})
        authenticators = self._admission.authenticators
        if authenticators is None:
            state[_CALLER] = LOCAL_CALLER
            return None
        if scope["path"] in self._open_paths:
            return None
        token = _bearer(_values(scope, b"authorization"))
        if token is None:
            return self._unauthenticated("a bearer token is needed", "")
        try:
            for authenticator in authenticators:
                caller = await authenticator.caller(token)
                if caller is not None:
                    state[_CALLER] = caller
                    self._told = ""
                    return None
        except UnjudgedError as error:
            if str(error) != self._told:
                _log.error("nobody is let in: %s", error)
            self._told = str(error)
            return _Refused(
                ErrorInfo(
                    ErrorCode.CANNOT_AUTHENTICATE,
                    "this server cannot judge tokens at the moment, so it lets nobody in",
                    "Try again later; its operator finds the reason in its log.",
                ),
                STATUS[ErrorCode.CANNOT_AUTHENTICATE],
            )
        except ScopeMissingError as error:
            return self._unauthenticated(
                f"the token lacks the scope {error}", "insufficient_scope", HTTPStatus.FORBIDDEN
            )
        return self._unauthenticated("the token is not known, or no longer", "invalid_token")

    def _unauthenticated(
        self, message: str, error: str, status: HTTPStatus = HTTPStatus.UNAUTHORIZED
    ) -> "_Refused":
        parts = ['realm="trt-agent-tools"']
        if error:
            parts += [f'error="{error}"', f'error_description="{message}"']
        if self._admission.scope:
            parts.append(f'scope="{self._admission.scope}"')
        if self._admission.metadata_url:
            parts.append(f'resource_metadata="{self._admission.metadata_url}"')
        return _Refused(
            ErrorInfo(
                ErrorCode.UNAUTHENTICATED,
                message,
                "Send `Authorization: Bearer TOKEN`; the server's operator gives tokens out.",
            ),
            status,
            (("WWW-Authenticate", "Bearer " + ", ".join(parts)),),
        )


@dataclass(frozen=True, slots=True)
class _Refused:
    error: ErrorInfo
    status: HTTPStatus
    headers: tuple[tuple[str, str], ...] = ()


async def _answer(refusal: _Refused, scope: Scope, receive: Receive, send: Send) -> None:
    answered = refuse(refusal.error, refusal.status)
    answered.headers.update(dict(refusal.headers))
    if _has_body(scope):
        # It is not read: the connection can serve no other request.
        answered.headers["Connection"] = "close"
    await answered(scope, receive, send)


def _values(scope: Scope, name: bytes) -> list[bytes]:
    return [value for key, value in scope["headers"] if key == name]


def _bearer(values: Sequence[bytes]) -> str | None:
    """Return the token of the one `Authorization` header, None where there is none."""
    if len(values) != 1:
        return None
    scheme, _, token = values[0].partition(b" ")
    token = token.strip()
    if scheme.lower() != b"bearer" or not 0 < len(token) <= MAX_TOKEN_BYTES or not token.isascii():
        return None
    return token.decode("ascii")


def _has_body(scope: Scope) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
        for name, value in scope["headers"]
    )
