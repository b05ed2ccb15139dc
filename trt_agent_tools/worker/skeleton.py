"""Reads an ONNX model without its weights: a model of 2 GB costs what its graph costs."""

from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.worker.faults import BuildFault
from trt_agent_tools.worker.onnx_fields import GRAPH_ENDS, TENSOR_DATA, TENSORS, WAYS
from trt_agent_tools.worker.opened import OpenedFile, unreadable
from trt_agent_tools.worker.protobuf import (
    BYTES,
    MAX_BYTES,
    MAX_DEPTH,
    Data,
    MalformedError,
    encode_varint,
    fields,
)

MAX_VALUE_BYTES = 64 * 1024
"""A longer value says nothing about the graph: a doc string, an engine inside a node, a table."""

MAX_SKELETON_BYTES = 128 * 1024 * 1024
"""So much may be left; the onnx library takes a few times as much to read it."""


class TooLargeError(Exception):
    """More than `MAX_SKELETON_BYTES` would be left of a model."""


def read_skeleton(model: OpenedFile) -> onnx.ModelProto:
    """Return what is in `model` as `skeleton` leaves it.

    Raises:
        BuildFault: INVALID_MODEL, it is no ONNX model; INVALID_ARGUMENT, its graph alone is too large to
            be looked at; MODEL_UNREADABLE.
    """
    path = model.path
    size = model.stamp.bytes
    if size > MAX_BYTES:
        raise _not_accepted(path, f"{size} bytes are more than one ONNX file may have")
    if size == 0:
        raise _not_accepted(path, "it is empty")
    try:
        with model.map() as data:
            bones = skeleton(data)
    except MalformedError as error:
        raise _not_accepted(path, f"it is no protobuf message, {error}") from error
    except TooLargeError as error:
        raise BuildFault(
            ErrorCode.INVALID_ARGUMENT,
            f"the graph of {path.name} is too large to be looked at: more than {MAX_SKELETON_BYTES} "
            "bytes without any weight",
            "Start the build without looking.",
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        return onnx.load_model_from_string(bones)
    except (DecodeError, UnicodeDecodeError) as error:
        raise _not_accepted(path, one_line(str(error), 200)) from error


def skeleton(data: Data) -> bytes:
    """Return the ONNX model in `data` without the values of its tensors.

    Also without any single value of more than `MAX_VALUE_BYTES`, other than an input or output of a
    graph. Everything else is kept as it is written; a group, which ONNX has none of, may go.

    Raises:
        MalformedError: it is no protobuf message, or one that is nested too deep.
        TooLargeError: too much is left.
    """
    return _without_values(data, 0, len(data), "model", 0)


def _without_values(data: Data, start: int, end: int, message: str, depth: int) -> bytes:
    if depth > MAX_DEPTH:
        raise MalformedError("nested too deep")
    is_tensor = message in TENSORS
    ways = {} if is_tensor else WAYS[message]
    kept = bytearray()
    # What is kept is copied in one piece for as long as it lies together.
    first = last = start
    for number, kind, begin, stop in fields(data, start, end):
        inner = ways.get(number) if kind == BYTES else None
        tag = (number << 3) | kind
        if inner:
            kept += data[first:last]
            content = _without_values(data, begin, stop, inner, depth + 1)
            kept += encode_varint(tag) + encode_varint(len(content)) + content
            first = last = stop
        elif (is_tensor and number in TENSOR_DATA) or (
            stop - begin > MAX_VALUE_BYTES and not (message == "graph" and number in GRAPH_ENDS)
        ):
            kept += data[first:last]
            first = last = stop
        else:
            last = stop
        # Before it is copied: a file of 2 GB may hold nothing but names.
        if len(kept) + last - first > MAX_SKELETON_BYTES:
            raise TooLargeError
    kept += data[first:last]
    return bytes(kept)


def _not_accepted(path: Path, why: str) -> BuildFault:
    return BuildFault(
        ErrorCode.INVALID_MODEL,
        f"{path.name} was not accepted as an ONNX model: {why}",
        "Check the file: it may be truncated, no ONNX model, or larger than 2 GiB without external data.",
    )
