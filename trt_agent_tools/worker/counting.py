"""Counts what a model asks of the builder: what `description` counts, on the file itself.

The onnx library is left out: importing it takes longer than most models take to be parsed.
"""

import mmap
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod

from trt_agent_tools.model.findings import Operator, most_frequent
from trt_agent_tools.model.untrusted import MAX_NAME, one_line
from trt_agent_tools.worker.onnx_fields import (
    ATTRIBUTE_TENSOR,
    ELEMENT_BITS,
    NODE_DOMAIN,
    NODE_OPERATOR,
    TENSOR_DIMENSIONS,
    TENSOR_TYPE,
    WAYS,
)
from trt_agent_tools.worker.opened import OpenedFile
from trt_agent_tools.worker.protobuf import (
    BYTES,
    MAX_BYTES,
    MAX_DEPTH,
    VARINT,
    MalformedError,
    fields,
    varint,
)

_SEARCHED_BYTES = 64 * 1024
"""An attribute up to this size is searched for a graph before it is walked."""

# An attribute's `type`, which is GRAPH or GRAPHS.
_HAS_GRAPH = (b"\xa0\x01\x05", b"\xa0\x01\x0a")

_INT64 = 1 << 63

_END_S = 1.0
"""How long a thread that was told to stop may take to see it."""


@dataclass(slots=True)
class Counts:
    """How many nodes ask for each operator, by the names that are shown; bytes of weights."""

    operators: Counter[str] = field(default_factory=Counter)
    weight_bytes: int = 0

    @property
    def nodes(self) -> int:
        """How many nodes there are, those of subgraphs and functions too."""
        return self.operators.total()

    @property
    def most_frequent(self) -> dict[str, int]:
        """The operators that most nodes ask for."""
        return most_frequent(self.operators)


class _GivenUpError(Exception):
    """Nobody waits for the counts any more."""


class ModelCounts:
    """Counts in a thread of its own while the parser, which leaves Python alone, reads the same file."""

    def __init__(self, model: OpenedFile) -> None:
        self._model = model
        self._stop = threading.Event()
        self._found: Counts | None = None
        self._thread = threading.Thread(target=self._run, name="model counts", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        # What is no model the parser refuses, in its own words.
        with suppress(OSError, ValueError, MalformedError, _GivenUpError):
            self._found = count(self._model, self._stop)

    def take(self, within_s: float) -> Counts | None:
        """Return the counts, or None where there are none within `within_s` seconds; then stop counting.

        A thread at work in Python would hold up TensorRT's callbacks later.
        """
        self._thread.join(within_s)
        self._stop.set()
        self._thread.join(_END_S)
        return self._found


def count(model: OpenedFile, stop: threading.Event | None = None) -> Counts:
    """Return what is counted in `model`.

    Raises:
        OSError: it cannot be read, or is empty.
        ValueError: it is larger than any ONNX file.
        MalformedError: it is no protobuf message.
    """
    if model.stamp.bytes > MAX_BYTES:
        raise ValueError(f"{model.name} is larger than one ONNX file may be")
    with model.map() as data:
        walk = _Walk(data, stop or threading.Event())
        walk.message(0, len(data), "model", 0)
        return walk.counts()


class _Walk:
    def __init__(self, data: mmap.mmap, stop: threading.Event) -> None:
        self._data = data
        self._stop = stop
        self._operators: Counter[tuple[bytes, bytes]] = Counter()
        self._weight_bytes = 0

    def counts(self) -> Counts:
        found = Counts(weight_bytes=self._weight_bytes)
        for (domain, kind), number in self._operators.items():
            operator = Operator(domain.decode("utf-8", "replace"), kind.decode("utf-8", "replace"))
            found.operators[one_line(operator.shown, MAX_NAME)] += number
        return found

    def message(self, start: int, end: int, message: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise MalformedError("nested too deep")
        ways = WAYS[message]
        weighs = message in {"graph", "sparse"}
        for number, kind, begin, stop in fields(self._data, start, end):
            if self._stop.is_set():
                raise _GivenUpError
            inner = ways.get(number) if kind == BYTES else None
            if inner == "node":
                self._node(begin, stop, depth + 1)
            elif inner in {"initializer", "tensor"}:
                if weighs:
                    self._tensor(begin, stop)
            elif inner == "sparse":
                # Only a graph's is an initializer; an attribute's is a value.
                if weighs:
                    self.message(begin, stop, inner, depth + 1)
            elif inner:
                self.message(begin, stop, inner, depth + 1)

    def _node(self, start: int, end: int, depth: int) -> None:
        data = self._data
        domain = operator = b""
        attributes: list[tuple[int, int]] = []
        for number, kind, begin, stop in fields(data, start, end):
            if self._stop.is_set():
                raise _GivenUpError
            if kind != BYTES:
                continue
            if number == NODE_OPERATOR:
                operator = bytes(data[begin:stop])
            elif number == NODE_DOMAIN:
                domain = bytes(data[begin:stop])
            elif WAYS["node"].get(number):
                attributes.append((begin, stop))
        for begin, stop in attributes:
            if operator == b"Constant":
                # Where some exporters keep all of a model's weights.
                self._constant(begin, stop)
            elif self._may_hold_graph(begin, stop):
                self.message(begin, stop, "attribute", depth + 1)
        self._operators[domain, operator] += 1

    def _constant(self, start: int, end: int) -> None:
        for number, kind, begin, stop in fields(self._data, start, end):
            if number == ATTRIBUTE_TENSOR and kind == BYTES:
                self._tensor(begin, stop)

    def _may_hold_graph(self, begin: int, stop: int) -> bool:
        # A search costs a hundredth of a walk, but for a large value, which it would read.
        if stop - begin > _SEARCHED_BYTES:
            return True
        return any(self._data.find(mark, begin, stop) >= 0 for mark in _HAS_GRAPH)

    def _tensor(self, start: int, end: int) -> None:
        data = self._data
        dimensions: list[int] = []
        bits = 0
        for number, kind, begin, stop in fields(data, start, end):
            if number == TENSOR_TYPE and kind == VARINT:
                bits = ELEMENT_BITS.get(varint(data, begin, stop)[0], 0)
            elif number == TENSOR_DIMENSIONS and kind == VARINT:
                dimensions.append(varint(data, begin, stop)[0])
            elif number == TENSOR_DIMENSIONS and kind == BYTES:
                position = begin
                while position < stop:
                    size, position = varint(data, position, stop)
                    dimensions.append(size)
        # A negative size is written as one beyond 63 bits.
        if all(size < _INT64 for size in dimensions):
            self._weight_bytes += (prod(dimensions) * bits + 7) // 8
