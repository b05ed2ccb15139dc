"""A server that takes an OAuth issuer's tokens, and a real issuer on this host."""

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import RSAAlgorithm

from tests.integration.http_serving import (
    WebServer,
    agent,
    bearer,
    cancelled,
    plain,
    refused,
    start_body,
    started,
    token_for,
    web_server,
)
from trt_agent_tools.mcp_server import issuer_keys
from trt_agent_tools.mcp_server.issuer_keys import IssuerKeys, KeysError
from trt_agent_tools.mcp_server.oauth import JwtVerifier
from trt_agent_tools.model.documents import PolicyList
from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.session import Session
from trt_agent_tools.model.snapshot import BuildList

pytestmark = pytest.mark.anyio

RESOURCE = "https://builds.example/mcp"
METADATA = "/.well-known/oauth-protected-resource/mcp"


def new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@dataclass
class Issuer:
    """Answers as an issuer does, counts how often it is asked, and signs tokens."""

    url: str = ""
    key: rsa.RSAPrivateKey = field(default_factory=new_key)
    key_id: str = "k1"
    fetches: int = 0

    def keys(self) -> dict[str, object]:
        public = json.loads(RSAAlgorithm.to_jwk(self.key.public_key()))
        return {"keys": [{**public, "kid": self.key_id, "use": "sig", "alg": "RS256"}]}

    def token(
        self,
        *,
        key: rsa.RSAPrivateKey | None = None,
        key_id: str = "k1",
        without: str | None = None,
        **claims: object,
    ) -> str:
        """Return a token that is good, but for what is given."""
        body: dict[str, object] = {
            "iss": self.url,
            "aud": RESOURCE,
            "sub": "ada",
            "exp": time.time() + 300,
            "client_id": "an-agent",
            "scope": "builds",
            **claims,
        }
        body.pop(without or "", None)
        return jwt.encode(body, key or self.key, algorithm="RS256", headers={"kid": key_id})


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    served = Issuer()

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            pages: dict[str, dict[str, object]] = {
                "/tenant/.well-known/openid-configuration": {
                    "issuer": served.url,
                    "jwks_uri": f"{served.url}/keys",
                },
                "/tenant/keys": served.keys(),
            }
            page = pages.get(self.path)
            served.fetches += self.path == "/tenant/keys"
            self.send_response(200 if page else 404)
            self.end_headers()
            self.wfile.write(json.dumps(page).encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (its base's name)
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    served.url = f"http://127.0.0.1:{server.server_port}/tenant"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield served
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def server(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    folder = tmp_path_factory.mktemp("oauth").resolve()
    (folder / "root").mkdir()
    options = (
        "--oauth-issuer",
        issuer.url,
        "--oauth-resource",
        RESOURCE,
        "--oauth-scope",
        "builds",
    )
    with web_server(folder / "root", folder / "state", *options) as running:
        yield running


@pytest.fixture
async def http(server: WebServer) -> AsyncIterator[httpx2.AsyncClient]:
    async with plain(server) as client:
        yield client


async def test_a_caller_without_a_token_is_told_where_tokens_come_from(
    http: httpx2.AsyncClient, issuer: Issuer
) -> None:
    for path in ("/mcp", "/v1/builds"):
        response = await http.post(path, json={})
        refused(response, 401, ErrorCode.UNAUTHENTICATED)
        challenge = response.headers["WWW-Authenticate"]
        assert f'resource_metadata="https://builds.example{METADATA}"' in challenge
        assert 'scope="builds"' in challenge
    metadata = (await http.get(METADATA)).json()
    assert metadata["resource"] == RESOURCE
    assert metadata["authorization_servers"] == [issuer.url]
    assert metadata["scopes_supported"] == ["builds"]


async def test_an_agent_and_a_program_with_the_issuers_tokens_are_served(
    server: WebServer, issuer: Issuer, nothing_left: None
) -> None:
    async with plain(server, issuer.token()) as http:
        build = await started(http, start_body(server))
        # Another token of the same subject, from another client.
        async with agent(server, issuer.token(client_id="another")) as client:
            listed = await client.call("list_builds")
            found = BuildList.model_validate(listed.structured_content).builds
            assert [b.build_id for b in found] == [build.build_id]
        await cancelled(http, build.build_id)


async def test_subjects_are_principals_of_their_own_and_no_tokens_name_is_one_of_them(
    server: WebServer, issuer: Issuer, nothing_left: None
) -> None:
    others = [
        issuer.token(sub="bob"),
        issuer.token(sub="local"),
        token_for(server.state, "local"),
        token_for(server.state, "ada"),
    ]
    async with plain(server, issuer.token(sub="eve")) as http:
        build = await started(http, start_body(server))
        for other in others:
            answer = await http.get(f"/v1/builds/{build.build_id}", headers=bearer(other))
            refused(answer, 404, ErrorCode.UNKNOWN_BUILD)
        await cancelled(http, build.build_id)


async def test_a_callers_policies_are_those_of_its_scopes(
    http: httpx2.AsyncClient, issuer: Issuer
) -> None:
    wide = bearer(issuer.token(sub="wide", scope="builds policy:ci policy:overnight"))
    listed = await http.get("/v1/policies", headers=wide)
    assert [p.name for p in PolicyList.model_validate_json(listed.content).policies] == [
        "ci",
        "overnight",
    ]
    default = await http.get("/v1/sessions/default", headers=wide)
    assert Session.model_validate_json(default.content).policy == "ci"
    narrow = bearer(issuer.token(sub="narrow"))
    answer = await http.post("/v1/sessions", json={"policy": "overnight"}, headers=narrow)
    refused(answer, 403, ErrorCode.POLICY_NOT_ALLOWED)


async def test_a_token_without_the_scope_is_told_which_one_it_lacks(
    http: httpx2.AsyncClient, issuer: Issuer
) -> None:
    response = await http.get("/v1/builds", headers=bearer(issuer.token(scope="mail")))
    refused(response, 403, ErrorCode.UNAUTHENTICATED)
    assert 'error="insufficient_scope"' in response.headers["WWW-Authenticate"]


def bad_tokens(issuer: Issuer) -> dict[str, str]:
    public = issuer.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    good = issuer.token()
    head, body, signature = good.split(".")
    claims = jwt.decode(good, options={"verify_signature": False})
    return {
        "expired": issuer.token(exp=time.time() - 300),
        "not yet": issuer.token(nbf=time.time() + 300),
        "for another server": issuer.token(aud="https://other.example/mcp"),
        "for a part of this one": issuer.token(aud="https://builds.example"),
        "of another issuer": issuer.token(iss="https://other.example"),
        "another key": issuer.token(key=new_key()),
        "a key that there is not": issuer.token(key=new_key(), key_id="k2"),
        "no expiry": issuer.token(without="exp"),
        "no audience": issuer.token(without="aud"),
        "no subject": issuer.token(without="sub"),
        "an empty subject": issuer.token(sub=""),
        "a huge subject": issuer.token(sub="a" * 300),
        "a subject that is no text": issuer.token(sub="\ud800"),
        "a subject on two lines": issuer.token(sub="a\nb"),
        "changed": f"{head}.{body[:-4]}AAAA.{signature}",
        "unsigned": jwt.encode(claims, "", algorithm="none", headers={"kid": "k1"}),
        "signed with the public key": hmac_signed(claims, public),
        "no JWT": "a.b.c",
    }


def hmac_signed(claims: dict[str, object], key: bytes) -> str:
    """Sign with a public key as if it were a secret, which the library itself refuses to do."""

    def part(data: bytes) -> bytes:
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    head = part(json.dumps({"alg": "HS256", "typ": "JWT", "kid": "k1"}).encode())
    signed = head + b"." + part(json.dumps(claims).encode())
    return (signed + b"." + part(hmac.digest(key, signed, hashlib.sha256))).decode()


@pytest.mark.parametrize("kind", bad_tokens(Issuer("https://none.example")))
async def test_a_token_that_is_not_good_lets_nobody_in(
    http: httpx2.AsyncClient, issuer: Issuer, kind: str
) -> None:
    response = await http.get("/v1/builds", headers=bearer(bad_tokens(issuer)[kind]))
    refused(response, 401, ErrorCode.UNAUTHENTICATED)
    assert 'error="invalid_token"' in response.headers["WWW-Authenticate"]


async def test_made_up_tokens_do_not_make_the_server_call_its_issuer_again_and_again(
    http: httpx2.AsyncClient, issuer: Issuer
) -> None:
    assert (await http.get("/v1/builds", headers=bearer(issuer.token()))).status_code == 200
    before = issuer.fetches
    for number in range(20):
        made_up = issuer.token(key_id=f"made up {number}")
        response = await http.get("/v1/builds", headers=bearer(made_up))
        refused(response, 401, ErrorCode.UNAUTHENTICATED)
    assert issuer.fetches <= before + 1


async def test_while_an_issuer_cannot_be_asked_its_tokens_let_nobody_in(
    tmp_path: Path, nothing_left: None
) -> None:
    root = tmp_path.resolve() / "root"
    root.mkdir()
    gone = Issuer("http://127.0.0.1:9/tenant")
    token = token_for(tmp_path / "state", "caller")
    options = ("--oauth-issuer", gone.url, "--oauth-resource", RESOURCE)
    with web_server(root, tmp_path / "state", *options) as server:
        async with plain(server) as http:
            answer = await http.get("/v1/builds", headers=bearer(gone.token()))
            refused(answer, 503, ErrorCode.CANNOT_AUTHENTICATE)
            # Who has a token of this server's own needs no issuer.
            assert (await http.get("/v1/builds", headers=bearer(token))).status_code == 200
            assert (await http.get("/healthz")).status_code == 200
        assert any(gone.url in line for line in server.told)


async def test_a_key_that_the_issuer_takes_into_use_later_is_found(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer_keys, "AGAIN_S", 0.0)
    verifier = JwtVerifier(issuer.url, RESOURCE)
    assert await verifier.verify_token(issuer.token())
    before = issuer.key
    monkeypatch.setattr(issuer, "key", new_key())
    monkeypatch.setattr(issuer, "key_id", "k2")
    assert await verifier.verify_token(issuer.token(key_id="k2"))
    assert await verifier.verify_token(issuer.token(key=before)) is None


async def test_keys_that_are_too_old_are_of_no_use_when_the_issuer_is_gone(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = IssuerKeys(issuer.url)
    assert await keys.find(issuer.key_id)
    monkeypatch.setattr(issuer_keys, "KEEP_S", 0.0)
    monkeypatch.setattr(issuer_keys, "AGAIN_S", 0.0)
    monkeypatch.setattr(issuer_keys, "metadata_urls", lambda _: ["http://127.0.0.1:9/"])
    for _ in range(2):
        with pytest.raises(KeysError):
            await keys.find(issuer.key_id)
