"""Finds the files that an ONNX model keeps weights in, without loading a weight.

The onnx library would load the whole graph, up to 2 GB, to answer this; so the protobuf is walked
field by field over a memory map. Field numbers: onnx/onnx.proto3.
"""

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.untrusted import MAX_NAME, one_line
from trt_agent_tools.worker.faults import BuildFault

_MODEL_GRAPH, _MODEL_FUNCTIONS = 7, 25
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_SPARSE = 1, 5, 15
_FUNCTION_NODE, _FUNCTION_ATTRIBUTE = 7, 11
_NODE_ATTRIBUTE = 5
_ATTRIBUTE_TENSOR, _ATTRIBUTE_GRAPH, _ATTRIBUTE_TENSORS, _ATTRIBUTE_GRAPHS = 5, 6, 10, 11
_ATTRIBUTE_SPARSE, _ATTRIBUTE_SPARSES = 22, 23
_SPARSE_VALUES, _SPARSE_INDICES = 1, 2
_TENSOR_EXTERNAL, _TENSOR_LOCATION = 13, 14
_ENTRY_KEY, _ENTRY_VALUE = 1, 2
_EXTERNAL = 1

_VARINT, _EIGHT_BYTES, _BYTES, _GROUP, _GROUP_END, _FOUR_BYTES = range(6)

_MAX_DEPTH = 100
"""The protobuf library's own limit: what is nested deeper the parser refuses."""
_MAX_BYTES = 2**31 - 1
"""The largest message that the protobuf library takes; of a larger file the parser says so."""
_MAX_SIDECARS = 10_000
_MAX_VARINT_BITS = 63

# The key under which a tensor says where its data is.
_LOCATION_KEY = b"location"

# Which fields of each message lead to a tensor, and to what message.
_WAYS: dict[str, dict[int, str]] = {
    "model": {_MODEL_GRAPH: "graph", _MODEL_FUNCTIONS: "function"},
    "graph": {_GRAPH_NODE: "node", _GRAPH_INITIALIZER: "initializer", _GRAPH_SPARSE: "sparse"},
    "function": {_FUNCTION_NODE: "node", _FUNCTION_ATTRIBUTE: "attribute"},
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
        BuildFault: the model cannot be read; a file of external data is missing, has a name that is
            no text, or leads outside the model's folder or the roots.
    """
    locations: dict[bytes, None] = {}
    try:
        with model.open("rb") as file:
            if not 0 < os.fstat(file.fileno()).st_size <= _MAX_BYTES:
                return []
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                for location in _locations(data, 0, len(data), "model", 0):
                    locations[location] = None
                    if len(locations) > _MAX_SIDECARS:
                        raise _too_many(model)
    except MalformedError:
        return []
    except OSError as error:
        raise BuildFault(
            ErrorCode.MODEL_UNREADABLE,
            f"{model.name} cannot be read: {error.strerror}",
            "Keep the model in place while it is built from.",
        ) from error
    return _resolve(model, list(locations), roots)


def _too_many(model: Path) -> BuildFault:
    return BuildFault(
        ErrorCode.INVALID_MODEL,
        f"{model.name} keeps its weights in more than {_MAX_SIDECARS} files",
        "Save its external data in one file.",
    )


def _resolve(model: Path, locations: list[bytes], roots: list[Path]) -> list[Path]:
    missing = []
    outside = []
    paths = []
    for location in locations:
        try:
            text = location.decode()
        except UnicodeDecodeError as error:
            shown = one_line(location.decode("utf-8", "replace"), MAX_NAME)
            raise BuildFault(
                ErrorCode.INVALID_MODEL,
                f"{model.name} keeps weights in a file whose name is no text: {shown!r}",
                "Save its external data under a name in UTF-8.",
            ) from error
        path = model.parent / text
        relative = Path(text)
        if relative.is_absolute() or ".." in relative.parts or not _within(path, roots):
            outside.append(one_line(text))
        elif not _is_file(path):
            missing.append(one_line(text))
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
    try:
        real = path.resolve()
    except (OSError, RuntimeError, ValueError):
        # A loop of symbolic links, or NUL in the name: it leads nowhere, and `_is_file` says so.
        return True
    return any(real.is_relative_to(root) for root in roots)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        # Too long a name, a folder that may not be searched, NUL.
        return False


def _locations(data: mmap.mmap, start: int, end: int, message: str, depth: int) -> Iterator[bytes]:
    if depth > _MAX_DEPTH:
        raise MalformedError("nested too deep")
    if message in {"tensor", "initializer"}:
        yield from _tensor_locations(data, start, end, message)
        return
    ways = _WAYS[message]
    for number, kind, begin, stop in _fields(data, start, end):
        inner = ways.get(number) if kind == _BYTES else None
        # Nodes are many and hardly ever hold external data: one search skips each of them.
        if inner == "node" and data.find(_LOCATION_KEY, begin, stop) < 0:
            continue
        if inner:
            yield from _locations(data, begin, stop, inner, depth + 1)


def _tensor_locations(data: mmap.mmap, start: int, end: int, message: str) -> list[bytes]:
    # A field that occurs twice is merged from both, so another occurrence of the same tensor may say
    # that its data is external. Initializers are a list, where each stands for itself.
    external = message != "initializer"
    found = []
    for number, kind, begin, stop in _fields(data, start, end):
        if (number, kind) == (_TENSOR_EXTERNAL, _BYTES):
            entry = {
                n: bytes(data[b:s]) for n, k, b, s in _fields(data, begin, stop) if k == _BYTES
            }
            if entry.get(_ENTRY_KEY) == _LOCATION_KEY:
                found.append(entry.get(_ENTRY_VALUE, b""))
        elif (number, kind) == (_TENSOR_LOCATION, _VARINT):
            external |= _varint(data, begin, stop)[0] & 0xFFFFFFFF == _EXTERNAL
    return found if external else []


def _fields(data: mmap.mmap, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield number, kind, begin and end of each field; groups, which ONNX has none of, are stepped over."""
    position = start
    groups: list[int] = []
    while position < end:
        tag, position = _varint(data, position, end)
        number, kind = tag >> 3, tag & 7
        begin = position
        # Number 0 is no field: zeros, in a file that was never filled.
        if kind == _VARINT and number:
            _, position = _varint(data, position, end)
        elif kind == _BYTES:
            length, begin = _varint(data, position, end)
            position = begin + length
        elif kind in {_EIGHT_BYTES, _FOUR_BYTES}:
            position += 8 if kind == _EIGHT_BYTES else 4
        elif kind == _GROUP and len(groups) < _MAX_DEPTH:
            groups.append(number)
            continue
        elif kind == _GROUP_END and groups and groups[-1] == number:
            groups.pop()
            continue
        else:
            raise MalformedError(f"wire type {kind}")
        if position > end:
            raise MalformedError("a field is longer than what holds it")
        if not groups:
            yield number, kind, begin, position
    if groups:
        raise MalformedError("a group has no end")


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
