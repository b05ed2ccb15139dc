"""docs/worker-protocol.md names everything that the protocol has, and its exchange is a real one."""

import re
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import get_args

import pytest

import trt_agent_tools
from trt_agent_tools.model.errors import ErrorCode, ErrorInfo
from trt_agent_tools.model.events import (
    BUILD_TOKEN_ENV,
    MAX_LINE_BYTES,
    PROTOCOL,
    Capabilities,
    EngineWritten,
    Goodbye,
    Heartbeat,
    Hello,
    InputFile,
    Origin,
    Outcome,
    Severity,
    WorkerEvent,
)
from trt_agent_tools.model.findings import Sidecar, TensorInfo, Weights
from trt_agent_tools.model.request import (
    FIRST_ORDER,
    BuildOrder,
    CancelOrder,
    InspectOrder,
    ProbeOrder,
)
from trt_agent_tools.supervisor.process.pump import MAX_BAD_LINES, BadLine, EventReader

PACKAGE = Path(trt_agent_tools.__file__).parent
DOCUMENT = (PACKAGE.parent / "docs" / "worker-protocol.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", DOCUMENT, re.DOTALL | re.MULTILINE))
EXCHANGES = re.findall(r"^```\n([<>] .*?)^```$", DOCUMENT, re.DOTALL | re.MULTILINE)

KINDS: tuple[type[WorkerEvent], ...] = get_args(WorkerEvent)
TYPES = {
    str(field.default): kind for kind in KINDS for field in fields(kind) if field.name == "type"
}
COMMON = {"at", "type"}


def named(section: str) -> set[str]:
    return set(re.findall(r'`"?(\w+)"?`', section))


@pytest.mark.parametrize("name", TYPES)
def test_every_event_has_a_section_that_names_all_of_its_fields(name: str) -> None:
    expected = {field.name for field in fields(TYPES[name])} - COMMON
    assert expected <= named(SECTIONS[name])


@pytest.mark.parametrize("name", TYPES)
def test_no_table_of_an_event_names_a_field_that_it_has_not(name: str) -> None:
    told = set(re.findall(r"^\| `(\w+)` \|", SECTIONS[name], re.MULTILINE))
    assert told <= {field.name for field in fields(TYPES[name])}


def test_what_every_event_has_is_told_once_for_all() -> None:
    before = DOCUMENT.split("## Events\n")[1].split("###")[0]
    assert named(before) >= COMMON


def test_the_parts_of_events_are_named() -> None:
    assert {field.name for field in fields(Capabilities)} <= named(SECTIONS["ready"])
    for part in (TensorInfo, Weights, Sidecar):
        assert {field.name for field in fields(part)} <= named(SECTIONS["inspected"])
    assert {field.name for field in fields(InputFile)} <= named(SECTIONS["inputs_digested"])
    assert {field.name for field in fields(ErrorInfo)} <= named(SECTIONS["failed"])


@pytest.mark.parametrize(
    ("names", "section"), [(Origin, "phase_started"), (Severity, "log"), (Outcome, "goodbye")]
)
def test_every_value_of_a_choice_is_named(names: type[Enum], section: str) -> None:
    assert {str(member.value) for member in names} <= named(SECTIONS[section])


@pytest.mark.parametrize("order", [BuildOrder, ProbeOrder, InspectOrder, CancelOrder])
def test_every_order_has_a_section_that_names_all_of_its_fields(
    order: type[BuildOrder | ProbeOrder | InspectOrder | CancelOrder],
) -> None:
    section = SECTIONS[str(order.model_fields["type"].default)]
    assert all(re.search(rf'[`"]{name}[`"]', section) for name in order.model_fields)


def test_every_code_that_the_worker_uses_is_named() -> None:
    sources = "".join(path.read_text("utf-8") for path in (PACKAGE / "worker").glob("*.py"))
    used = {ErrorCode[name].value for name in re.findall(r"ErrorCode\.([A-Z_]+)", sources)}
    assert used <= named(SECTIONS["failed"])


def test_an_unknown_code_is_no_event_as_is_told() -> None:
    reader = EventReader(accepted=0.0, launched=0.0)
    line = (
        b'{"type":"failed","at":1,"error":{"code":"broken","message":"m","hint":"","details":{}}}'
    )
    assert isinstance(reader.read(line, 10.0), BadLine)


def test_the_numbers_are_those_of_the_code() -> None:
    assert f"version {PROTOCOL}" in DOCUMENT
    assert f"{MAX_LINE_BYTES:,} bytes" in DOCUMENT
    assert f"more than {MAX_BAD_LINES} of them" in DOCUMENT
    assert f"`{BUILD_TOKEN_ENV}`" in DOCUMENT


def test_the_files_that_it_points_to_are_there() -> None:
    for path in re.findall(r"`(trt_agent_tools/[\w/.]+)`", DOCUMENT):
        assert (PACKAGE.parent / path).is_file(), path
    for path in re.findall(r"\]\((\w+\.md)\)", DOCUMENT):
        assert (PACKAGE.parent / "docs" / path).is_file(), path


def events_of(exchange: str) -> list[WorkerEvent]:
    reader = EventReader(accepted=0.0, launched=0.0)
    # An excerpt begins later than with hello.
    reader.read(b'{"type":"hello","at":0,"backend":"tensorrt_rtx","pid":1,"monotonic":0}', 1e6)
    events: list[WorkerEvent] = []
    for line in exchange.splitlines():
        if line.startswith("< "):
            event = reader.read(line[2:].encode(), 1e6)
            assert event is not None
            assert not isinstance(event, BadLine), line
            events.append(event)
    return events


def test_the_whole_exchange_is_one_that_the_supervisor_reads() -> None:
    whole = EXCHANGES[0]
    first, *others = [line[2:] for line in whole.splitlines() if line.startswith("> ")]
    order = FIRST_ORDER.validate_json(first)
    assert isinstance(order, BuildOrder)
    assert others == []
    events = events_of(whole)
    assert isinstance(events[0], Hello)
    assert isinstance(events[-1], Goodbye)
    assert any(isinstance(event, Heartbeat) for event in events)
    [written] = [event for event in events if isinstance(event, EngineWritten)]
    assert (written.path, written.manifest) == (order.output, order.manifest)


def test_the_exchange_with_a_cancel_ends_with_one() -> None:
    excerpt = EXCHANGES[1]
    [order] = [line[2:] for line in excerpt.splitlines() if line.startswith("> ")]
    assert CancelOrder.model_validate_json(order).reason
    last = events_of(excerpt)[-1]
    assert isinstance(last, Goodbye)
    assert last.outcome is Outcome.CANCELLED
