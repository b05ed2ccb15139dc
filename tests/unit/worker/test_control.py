"""Orders: one JSON object a line; what is not understood is survived, the end of file is obeyed."""

import os
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_agent_tools.model.request import ProbeOrder
from trt_agent_tools.worker.control import MAX_ORDER_BYTES, Control, OrderError
from trt_agent_tools.worker.stop import Stop

TIMEOUT_S = 30.0
PROBE = ProbeOrder(protocol=1, backend="replay")
FIRST = PROBE.model_dump_json().encode() + b"\n"
CANCEL = b'{"type":"cancel","reason":"user_request"}\n'


class Desk:
    """Who gives orders, at the other end of a pipe."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        self.control = Control(self._reader)
        self.stop = Stop()
        self.gone = threading.Event()

    def say(self, data: bytes) -> None:
        """Write `data` beside the test: a pipe holds less than the largest orders."""
        threading.Thread(target=self._write, args=(data,), daemon=True).start()

    def say_now(self, data: bytes) -> None:
        self._write(data)

    def hang_up(self) -> None:
        os.close(self._writer)
        self._writer = -1

    def watch(self) -> None:
        self.control.watch(self.stop, self.gone.set)

    def close(self) -> None:
        if self._writer >= 0:
            self.hang_up()

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._writer, view) :]


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.close()


def test_the_first_line_is_the_order_and_the_next_is_obeyed(desk: Desk) -> None:
    desk.say_now(FIRST + CANCEL)
    assert desk.control.first_order() == PROBE
    desk.watch()
    assert desk.stop.wait(TIMEOUT_S)
    assert (desk.stop.asked, desk.stop.reason) == (True, "user_request")
    assert not desk.gone.is_set()


def test_an_order_may_come_in_pieces(desk: Desk) -> None:
    for byte in FIRST:
        desk.say_now(bytes([byte]))
    assert desk.control.first_order() == PROBE


@pytest.mark.parametrize(
    "line",
    [b"\n", b"{}\n", b"[]\n", b"\xff\n", b'{"type":"cancel","reason":"x"}\n', b"[" * 9999 + b"\n"],
)
def test_a_first_line_that_is_no_order_is_refused(desk: Desk, line: bytes) -> None:
    desk.say_now(line)
    with pytest.raises(OrderError):
        desk.control.first_order()


@pytest.mark.parametrize("half", [b"", b'{"type":"pro'])
def test_a_supervisor_that_is_gone_at_once_is_noticed(desk: Desk, half: bytes) -> None:
    desk.say_now(half)
    desk.hang_up()
    with pytest.raises(EOFError):
        desk.control.first_order()


def test_a_first_line_without_end_is_refused_before_memory_is(desk: Desk) -> None:
    desk.say(b"x" * (MAX_ORDER_BYTES + 200_000))
    with pytest.raises(OrderError, match=str(MAX_ORDER_BYTES)):
        desk.control.first_order()


def test_the_end_of_file_is_the_end_of_the_supervisor(desk: Desk) -> None:
    desk.watch()
    assert not desk.gone.wait(0.05)
    desk.hang_up()
    assert desk.gone.wait(TIMEOUT_S)
    assert not desk.stop.asked


def test_half_an_order_before_the_end_of_file_is_none(desk: Desk) -> None:
    desk.watch()
    desk.say_now(CANCEL[:-1])
    desk.hang_up()
    assert desk.gone.wait(TIMEOUT_S)
    assert not desk.stop.asked


def test_the_first_reason_stays(desk: Desk) -> None:
    desk.watch()
    desk.say_now(CANCEL + CANCEL.replace(b"user_request", b"build_time"))
    desk.hang_up()
    assert desk.gone.wait(TIMEOUT_S)
    assert desk.stop.reason == "user_request"


@given(
    st.lists(
        st.one_of(
            st.binary().map(lambda data: data.replace(b"\n", b"")),
            st.sampled_from([b'{"type":"extend","reason":"more"}', b"{}", b"null", b"[" * 5000]),
        )
    )
)
def test_unknown_orders_are_ignored_and_those_after_them_obeyed(lines: list[bytes]) -> None:
    desk = Desk()
    desk.watch()
    desk.say(b"".join(line + b"\n" for line in lines) + CANCEL)
    assert desk.stop.wait(TIMEOUT_S)
    desk.hang_up()
    assert desk.gone.wait(TIMEOUT_S)


def test_an_order_too_long_does_not_make_a_worker_deaf(desk: Desk) -> None:
    desk.watch()
    desk.say(b"x" * (3 * MAX_ORDER_BYTES) + b"\n" + CANCEL)
    assert desk.stop.wait(TIMEOUT_S)
    assert not desk.gone.is_set()
    desk.hang_up()
    assert desk.gone.wait(TIMEOUT_S)
