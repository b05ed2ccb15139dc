"""An OAuth resource server: takes access tokens (JWT) of one issuer that were issued for this server."""

import re
from collections.abc import Mapping

import jwt
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.routes import build_resource_metadata_url, create_protected_resource_routes
from pydantic import AnyHttpUrl, ValidationError
from starlette.applications import Starlette
from starlette.types import ASGIApp

from trt_agent_tools.api.authentication import ScopeMissingError
from trt_agent_tools.mcp_server.issuer_keys import IssuerKeys, is_safe
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.supervisor.principals import Caller

ALGORITHMS = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
)
"""Signatures by a private key alone: what anybody could make with a public one is none."""

CLOCKS_S = 30
"""So far the issuer's clock may be from this host's."""

POLICY_SCOPE = "policy:"
"""Begins a scope that allows its caller a policy by its name."""

MAX_SUBJECT = 255
"""Of OpenID Connect."""

_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


class JwtVerifier:
    """Verifies access tokens; the library's `TokenVerifier`."""

    def __init__(self, issuer: str, resource: str) -> None:
        self._issuer = issuer
        self._resource = resource
        plain = resource.rstrip("/")
        self._audience = [plain, f"{plain}/"]
        self._keys = IssuerKeys(issuer)

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return what a token says, None if it is not good.

        Raises:
            KeysError: the issuer's keys cannot be had.
        """
        try:
            header = jwt.get_unverified_header(token)
            claimed = jwt.decode(token, options={"verify_signature": False})
        except (jwt.PyJWTError, ValueError, RecursionError):
            # Some of what JSON can hold is too much for the library.
            return None
        key_id = header.get("kid")
        if header.get("alg") not in ALGORITHMS or claimed.get("iss") != self._issuer:
            return None
        if key_id is not None and not isinstance(key_id, str):
            return None
        key = await self._keys.find(key_id)
        if key is None:
            return None
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=list(ALGORITHMS),
                issuer=self._issuer,
                audience=self._audience,
                leeway=CLOCKS_S,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except jwt.PyJWTError:
            return None
        return self._told(token, claims)

    def _told(self, token: str, claims: Mapping[str, object]) -> AccessToken | None:
        subject, expires = claims["sub"], claims["exp"]
        if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT:
            return None
        if not subject.isprintable():
            # Also what UTF-8 cannot hold: the name goes to the journal and to logs.
            return None
        client = claims.get("client_id", claims.get("azp"))
        return AccessToken(
            token=token,
            client_id=client if isinstance(client, str) else subject,
            scopes=_scopes(claims),
            expires_at=int(expires) if isinstance(expires, int | float) else None,
            resource=self._resource,
            subject=subject,
            claims={"iss": self._issuer},
        )


class OAuth:
    """Vouches for the callers that an issuer knows; see `Authenticator`.

    A caller is its issuer and subject together. It may name the policies of its scopes `policy:NAME`,
    without any the server's own alone. With `scope` every token must have that one.

    Raises:
        Refusal: a URL is missing or not valid, or the issuer's is not behind https.
    """

    def __init__(self, issuer: str | None, resource: str | None, scope: str | None = None) -> None:
        if not issuer or not resource:
            raise Refusal(
                ErrorCode.INVALID_ARGUMENT,
                "--oauth-issuer and --oauth-resource go together",
                "Give both: who issues the tokens, and this server's URL as the tokens name it.",
            )
        issuer_url = _url("--oauth-issuer", issuer)
        resource_url = _url("--oauth-resource", resource)
        if not is_safe(issuer):
            raise Refusal(
                ErrorCode.INVALID_ARGUMENT,
                "--oauth-issuer is not behind https",
                "Somebody on the way could issue tokens in its place: give its https URL.",
            )
        if scope is not None and not _SCOPE.fullmatch(scope):
            raise Refusal(
                ErrorCode.INVALID_ARGUMENT,
                f"--oauth-scope {one_line(scope, 80)!r} is no scope",
                "Give one word, without quotation marks and backslashes.",
            )
        self._issuer = issuer
        self.scope = scope
        self._verifier = JwtVerifier(issuer, resource)
        self.metadata_url = str(build_resource_metadata_url(resource_url))
        routes = create_protected_resource_routes(
            resource_url=resource_url,
            authorization_servers=[issuer_url],
            scopes_supported=[scope] if scope else None,
        )
        page = Starlette(routes=routes)
        self.open_pages: dict[str, ASGIApp] = {route.path: page for route in routes}

    async def caller(self, token: str) -> Caller | None:
        """See `Authenticator`."""
        told = await self._verifier.verify_token(token)
        if told is None:
            return None
        if self.scope is not None and self.scope not in told.scopes:
            raise ScopeMissingError(self.scope)
        policies = [
            scope.removeprefix(POLICY_SCOPE)
            for scope in told.scopes
            if scope.startswith(POLICY_SCOPE) and scope != POLICY_SCOPE
        ]
        # No URL has a blank: where the issuer ends and the subject begins is beyond doubt.
        return Caller(f"oauth:{self._issuer} {told.subject}", tuple(policies))


def _scopes(claims: Mapping[str, object]) -> list[str]:
    """Return the scopes of a token, which issuers write as text or as a list."""
    said = claims.get("scope", claims.get("scp"))
    if isinstance(said, str):
        return said.split()
    if isinstance(said, list):
        return [scope for scope in said if isinstance(scope, str)]
    return []


def _url(option: str, text: str) -> AnyHttpUrl:
    try:
        url = AnyHttpUrl(text)
    except ValidationError as error:
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"{option} {one_line(text, 80)!r} is no URL",
            "Give one such as https://login.example.com.",
        ) from error
    if url.query or url.fragment or " " in text:
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"{option} has a query, a fragment or a blank",
            "Give it exactly as the tokens have it.",
        )
    return url
