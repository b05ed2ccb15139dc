import anyio
import httpx2
import pytest
from starlette.requests import HTTPConnection, Request
from starlette.types import Message, Receive, Scope, Send

from trt_agent_tools.api.addresses import Addresses
from trt_agent_tools.api.authentication import ScopeMissingError, UnjudgedError
from trt_agent_tools.api.gate import Admission, Gate, caller_of
from trt_agent_tools.supervisor.principals import LOCAL_CALLER, Caller

pytestmark = pytest.mark.anyio

ADDRESSES = Addresses(("server",), ())
GOOD_TOKEN = "good"  # noqa: S105  (nobody keeps it secret)
ADA = Caller("token:ada", ())


class Known:
    """Knows one token until it is told otherwise."""

    def __init__(self, caller: Caller | None = ADA) -> None:
        self.found = caller
        self.error: Exception | None = None

    async def caller(self, token: str) -> Caller | None:
        if self.error:
            raise self.error
        return self.found if token == GOOD_TOKEN else None


async def tell_the_caller(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that answers with the principal."""
    principal = caller_of(Request(scope)).principal.encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": principal})


def client(gate: Gate) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=gate), base_url="http://server")


@pytest.fixture
async def known() -> Known:
    return Known()


GOOD = {"Authorization": "Bearer good"}


async def test_the_application_is_told_who_asks(known: Known) -> None:
    async with client(Gate(tell_the_caller, ADDRESSES, Admission((known,)))) as http:
        assert (await http.get("/", headers=GOOD)).text == "token:ada"
        assert (await http.get("/", headers={"Authorization": "bearer   good "})).status_code == 200
        assert (await http.get("/")).status_code == 401


async def test_every_vouching_party_is_asked_in_turn() -> None:
    gate = Gate(tell_the_caller, ADDRESSES, Admission((Known(None), Known(Caller("oauth:x", ())))))
    async with client(gate) as http:
        assert (await http.get("/", headers=GOOD)).text == "oauth:x"


async def test_without_authentication_everybody_is_the_local_user() -> None:
    async with client(Gate(tell_the_caller, ADDRESSES, Admission(None))) as http:
        assert (await http.get("/")).text == LOCAL_CALLER.principal
        assert (await http.get("http://evil/")).status_code == 421


async def test_who_comes_past_the_gate_is_nobody() -> None:
    for state in ({}, {"caller": "token:ada"}):
        with pytest.raises(RuntimeError):
            caller_of(HTTPConnection({"type": "http", "headers": [], "state": state}))


async def test_what_cannot_be_judged_lets_nobody_in_and_says_nothing_of_the_reason(
    known: Known,
) -> None:
    known.error = UnjudgedError("/secret/place is damaged")
    async with client(Gate(tell_the_caller, ADDRESSES, Admission((known,)))) as http:
        response = await http.get("/", headers=GOOD)
    assert response.status_code == 503
    assert "secret" not in response.text


async def test_a_lacking_scope_is_named(known: Known) -> None:
    known.error = ScopeMissingError("builds")
    admission = Admission((known,), metadata_url="https://server/m", scope="builds")
    async with client(Gate(tell_the_caller, ADDRESSES, admission)) as http:
        response = await http.get("/", headers=GOOD)
    assert response.status_code == 403
    assert response.headers["WWW-Authenticate"] == (
        'Bearer realm="trt-agent-tools", error="insufficient_scope", '
        'error_description="the token lacks the scope builds", scope="builds", '
        'resource_metadata="https://server/m"'
    )


async def until_cancelled(scope: Scope, receive: Receive, send: Send) -> None:
    """An application whose answer never comes."""
    await anyio.sleep_forever()


async def endless(scope: Scope, receive: Receive, send: Send) -> None:
    """An application whose answer never ends."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"a", "more_body": True})
    await anyio.sleep_forever()


async def test_a_wait_ends_when_its_token_is_no_longer_good(known: Known) -> None:
    gate = Gate(until_cancelled, ADDRESSES, Admission((known,), again_s=0.01))
    async with client(gate) as http, anyio.create_task_group() as tasks:

        async def wait() -> None:
            with anyio.fail_after(10):
                assert (await http.get("/", headers=GOOD)).status_code == 401

        tasks.start_soon(wait)
        await anyio.lowlevel.checkpoint()
        known.found = None


async def test_a_stream_ends_when_its_token_is_no_longer_good(known: Known) -> None:
    gate = Gate(endless, ADDRESSES, Admission((known,), again_s=0.01))
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)
        if message["type"] == "http.response.body":
            known.found = None

    scope: Scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "headers": [(b"host", b"server"), (b"authorization", b"Bearer good")],
    }
    with anyio.fail_after(10):
        await gate(scope, anyio.sleep_forever, send)  # type: ignore[arg-type]
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
