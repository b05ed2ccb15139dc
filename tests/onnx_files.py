"""ONNX files written by hand: what the onnx library would not write, or not without gigabytes of memory."""

from pathlib import Path

import onnx
from onnx import TensorProto, helper

_BYTES = 2


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def head(number: int, length: int) -> bytes:
    """Return the beginning of a field of `length` bytes."""
    return varint(number << 3 | _BYTES) + varint(length)


def field(number: int, content: bytes) -> bytes:
    return head(number, len(content)) + content


def small_model(weight: TensorProto | None = None) -> bytes:
    """Return y = x + w; the weight may be in a file of its own, or still to come."""
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, ["batch", 4])],
        [] if weight is None else [weight],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    data: bytes = made.SerializeToString()
    return data


def write_inline(path: Path, size: int) -> None:
    """Write a model with a weight of `size` bytes inside: zeros, which a file system need not store."""
    weight = TensorProto(name="w", dims=[size], data_type=TensorProto.UINT8).SerializeToString()
    weight += head(9, size)
    graph = head(5, len(weight) + size) + weight
    # A second part of the same graph: protobuf merges the two.
    with path.open("wb") as file:
        file.write(small_model() + head(7, len(graph) + size) + graph)
        file.truncate(file.tell() + size)


def write_external(path: Path, size: int) -> Path:
    """Write a model with a weight of `size` bytes in a file beside it, zeros; return that file."""
    sidecar = path.with_suffix(".bin")
    weight = TensorProto(
        name="w", dims=[size], data_type=TensorProto.UINT8, data_location=TensorProto.EXTERNAL
    )
    for key, value in (("location", sidecar.name), ("offset", "0"), ("length", str(size))):
        entry = weight.external_data.add()
        entry.key, entry.value = key, value
    path.write_bytes(small_model(weight))
    with sidecar.open("wb") as file:
        file.truncate(size)
    return sidecar


def write_slow(path: Path) -> None:
    """Write a file that takes minutes to be looked at: millions of fields that mean nothing."""
    path.write_bytes(small_model() + (varint(1000 << 3) + b"\x01") * 60_000_000)


def write_dynamic(path: Path, *, unsupported: bool = False) -> None:
    """Write a convolution over images of any size, perhaps with operators that nobody has."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Mine", ["c"], ["d"], domain="me"),
    ]
    if unsupported:
        nodes += [
            helper.make_node("Fancy", ["d"], ["e"], domain="com.acme"),
            helper.make_node("Unique", ["e"], ["y"]),
        ]
    else:
        nodes += [helper.make_node("Gelu", ["d"], ["y"], domain="com.microsoft")]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4, 3, 3, 3], [0.5] * 108)
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, "height", "width"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [weight],
    )
    domains = {"": 17, "me": 1, "com.acme": 1, "com.microsoft": 1}
    made = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid(*each) for each in domains.items()],
        ir_version=9,
        producer_name="hand",
    )
    body = [helper.make_node("Relu", ["a"], ["b"])]
    made.functions.append(
        helper.make_function("me", "Mine", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    )
    onnx.save(made, path)
