import pytest

from trt_agent_tools.api.addresses import Addresses, is_loopback, is_wildcard, url_of
from trt_agent_tools.model.errors import Refusal


def of(
    *bound: str, port: int = 8765, hosts: tuple[str, ...] = (), origins: tuple[str, ...] = ()
) -> Addresses:
    return Addresses.of(bound, port, hosts=hosts, origins=origins)


def test_a_server_is_known_by_its_address_and_as_the_local_host_with_its_port() -> None:
    known = of("10.1.2.3")
    for host in (
        "10.1.2.3:8765",
        "localhost:8765",
        "127.0.0.1:8765",
        "[::1]:8765",
        "LocalHost:8765",
    ):
        assert known.takes_host([host.encode()])
    for host in (
        "10.1.2.3",
        "10.1.2.4:8765",
        "localhost",
        "localhost:80",
        "localhost.evil:8765",
        "",
    ):
        assert not known.takes_host([host.encode()])
    assert not known.takes_host([])


def test_the_usual_port_is_left_out_by_clients() -> None:
    assert of("127.0.0.1", port=80).takes_host([b"localhost"])


def test_an_address_of_ipv6_is_written_in_brackets() -> None:
    assert of("fd00::1").takes_host([b"[fd00::1]:8765"])
    assert url_of("::1", 80) == "http://[::1]:80"


def test_a_name_that_is_given_is_taken_with_any_port_unless_it_has_one() -> None:
    known = of("127.0.0.1", hosts=("Builds.Example", "other.example:1"))
    for host in (b"builds.example", b"builds.example:443", b"other.example:1"):
        assert known.takes_host([host])
    for host in (b"other.example", b"other.example:2", b"builds.example:x", b"builds.example:"):
        assert not known.takes_host([host])


def test_an_origin_is_taken_as_it_is_given() -> None:
    known = of("127.0.0.1", origins=("https://pages.example",))
    for origin in (b"https://pages.example", b"HTTPS://Pages.Example", b"http://localhost:8765"):
        assert known.takes_origin([origin])
    for origin in (
        b"http://pages.example",
        b"https://pages.example:444",
        b"null",
        b"https://localhost:8765",
    ):
        assert not known.takes_origin([origin])
    assert known.takes_origin([])
    assert not known.takes_origin([b"https://pages.example", b"https://pages.example"])


@pytest.mark.parametrize("host", ["", "*", "http://a", "a/b", "a b", "-a", "a:", "a:b", "[::1"])
def test_what_no_browser_sends_as_a_host_is_refused(host: str) -> None:
    with pytest.raises(Refusal):
        of("127.0.0.1", hosts=(host,))


@pytest.mark.parametrize("origin", ["", "*", "null", "a", "ftp://a", "https://a/", "https://a b"])
def test_what_no_browser_sends_as_an_origin_is_refused(origin: str) -> None:
    with pytest.raises(Refusal):
        of("127.0.0.1", origins=(origin,))


def test_which_addresses_are_reached_from_this_host_alone() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1")))
    assert not any(map(is_loopback, ("0.0.0.0", "10.0.0.1", "::", "fe80::1%eth0")))  # noqa: S104
    assert all(map(is_wildcard, ("0.0.0.0", "::")))  # noqa: S104
