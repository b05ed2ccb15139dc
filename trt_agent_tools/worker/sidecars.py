"""Finds the files that an ONNX model keeps weights in, without loading a weight.

The onnx library would load the whole graph, up to 2 GB, to answer this; so the protobuf is walked
field by field over a memory map. Field numbers: onnx/onnx.proto3.
"""

import mmap
from collections.abc import Iterator
from pathlib import Path

from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.worker.faults import BuildFault

_MODEL_GRAPH, _MODEL_FUNCTIONS = 7, 25
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_SPARSE = 1, 5, 15
_FUNCTION_NODE = 7
_NODE_ATTRIBUTE = 5
_ATTRIBUTE_TENSOR, _ATTRIBUTE_GRAPH, _ATTRIBUTE_TENSORS, _ATTRIBUTE_GRAPHS = 5, 6, 10, 11
_ATTRIBUTE_SPARSE, _ATTRIBUTE_SPARSES = 22, 23
_SPARSE_VALUES, _SPARSE_INDICES = 1, 2
_TENSOR_EXTERNAL = 13
_ENTRY_KEY, _ENTRY_VALUE = 1, 2

_MAX_DEPTH = 64
_MAX_SIDECARS = 10_000
_MAX_VARINT_BITS = 63

# How a tensor says where its data is: field 1 ("key"), eight bytes.
_LOCATION_KEY = b"\x0a\x08location"

# Which fields of each message lead to a tensor, and to what message.
_WAYS: dict[str, dict[int, str]] = {
    "model": {_MODEL_GRAPH: "graph", _MODEL_FUNCTIONS: "function"},
    "graph": {_GRAPH_NODE: "node", _GRAPH_INITIALIZER: "tensor", _GRAPH_SPARSE: "sparse"},
    "function": {_FUNCTION_NODE: "node"},
    "node": {_NODE_ATTRIBUTE: "attribute"},
    "attribute": {
        _ATTRIBUTE_TENSOR: "tensor",
        _ATTRIBUTE_TENSORS: "tensor",
        _ATTRIBUTE_GRAPH: "graph",
        _ATTRIBUTE_GRAPHS: "graph",
        _ATTRIBUTE_SPARSE: "sparse",
        _ATTRIBUTE_SPARSES: "sparse",
    },
    "sparse": {_SPARSE_VALUES: "tensor", _SPARSE_INDICES: "tensor"},
}


class MalformedError(Exception):
    """The bytes are no protobuf message. The parser will say so in its own words."""


def find_sidecars(model: Path, roots: list[Path]) -> list[Path]:
    """Return the files that hold the model's external data, each once, in order of appearance.

    A file that is no protobuf has none: the parser will refuse it.

    Raises:
        BuildFault: a file is missing, or leads outside the model's folder or the roots.
    """
    locations: dict[str, None] = {}
    with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            for location in _locations(data, 0, len(data), "model", 0):
                locations[location] = None
                if len(locations) > _MAX_SIDECARS:
                    raise _too_many(model)
        except MalformedError:
            return []
    return _resolve(model, list(locations), roots)


def _too_many(model: Path) -> BuildFault:
    return BuildFault(
        ErrorCode.INVALID_MODEL,
        f"{model.name} keeps its weights in more than {_MAX_SIDECARS} files",
        "Save its external data in one file.",
    )


def _resolve(model: Path, locations: list[str], roots: list[Path]) -> list[Path]:
    missing = []
    outside = []
    paths = []
    for location in locations:
        path = model.parent / location
        relative = Path(location)
        if relative.is_absolute() or ".." in relative.parts or not _within(path, roots):
            outside.append(one_line(location))
        elif not path.is_file():
            missing.append(one_line(location))
        else:
            paths.append(path)
    if outside:
        raise BuildFault(
            ErrorCode.OUTSIDE_ROOTS,
            f"the model's external data leads outside its folder: {', '.join(outside[:5])}",
            "Keep external data files beside the model, inside the server's roots.",
            {"files": outside},
        )
    if missing:
        raise BuildFault(
            ErrorCode.MISSING_EXTERNAL_DATA,
            f"the model's external data is missing: {', '.join(missing[:5])}"
            + (f" and {len(missing) - 5} more" if len(missing) > 5 else ""),  # noqa: PLR2004
            f"Put the file beside {model.name}; it was saved with its weights in files of their own.",
            {"files": missing},
        )
    return paths


def _within(path: Path, roots: list[Path]) -> bool:
    real = path.resolve()
    return any(real.is_relative_to(root) for root in roots)


def _locations(data: mmap.mmap, start: int, end: int, message: str, depth: int) -> Iterator[str]:
    if depth > _MAX_DEPTH:
        raise MalformedError("nested too deep")
    if message == "tensor":
        yield from _tensor_location(data, start, end)
        return
    ways = _WAYS[message]
    for number, begin, stop in _fields(data, start, end):
        inner = ways.get(number)
        # Nodes are many and hardly ever hold external data: one search skips each of them.
        if inner == "node" and data.find(_LOCATION_KEY, begin, stop) < 0:
            continue
        if inner:
            yield from _locations(data, begin, stop, inner, depth + 1)


def _tensor_location(data: mmap.mmap, start: int, end: int) -> Iterator[str]:
    for number, begin, stop in _fields(data, start, end):
        if number == _TENSOR_EXTERNAL:
            entry = {n: bytes(data[b:s]) for n, b, s in _fields(data, begin, stop)}
            if entry.get(_ENTRY_KEY) == b"location":
                yield entry.get(_ENTRY_VALUE, b"").decode("utf-8", "surrogateescape")


def _fields(data: mmap.mmap, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield number, begin and end of each length-delimited field; step over the others."""
    position = start
    while position < end:
        tag, position = _varint(data, position, end)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            _, position = _varint(data, position, end)
            continue
        if kind == 2:  # noqa: PLR2004  (length-delimited)
            length, position = _varint(data, position, end)
        elif kind in {1, 5}:
            length = 8 if kind == 1 else 4
        else:
            raise MalformedError(f"wire type {kind}")
        if length > end - position:
            raise MalformedError("a field is longer than what holds it")
        if kind == 2:  # noqa: PLR2004
            yield number, position, position + length
        position += length


def _varint(data: mmap.mmap, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004  (the last byte of a varint)
            return value, position
        shift += 7
        if shift > _MAX_VARINT_BITS:
            break
    raise MalformedError("a number has no end")
