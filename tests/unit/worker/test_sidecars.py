"""External data is found in any model that the parser takes, and any bytes are survived."""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import AttributeProto, NodeProto, TensorProto, helper, numpy_helper

from tests.onnx_files import field, head, varint
from trt_agent_tools.model.errors import ErrorCode, ErrorInfo
from trt_agent_tools.worker.faults import BuildFault
from trt_agent_tools.worker.opened import OpenedModel
from trt_agent_tools.worker.sidecars import find_sidecars


def tensor(location: str | bytes | None, name: str = "w") -> TensorProto:
    """Return a tensor whose data is in the file `location`."""
    made = numpy_helper.from_array(np.ones((1, 4), np.float32), name)
    if location is not None:
        made.ClearField("raw_data")
        made.data_location = TensorProto.EXTERNAL
        # Other keys come before and after it.
        for key, value in (("offset", "0"), ("location", location), ("length", "16")):
            entry = made.external_data.add()
            entry.key = key
            entry.value = value if isinstance(value, str) else "?" * len(value)
    return made


def model(
    *weights: TensorProto,
    nodes: list[NodeProto] | None = None,
    sparse: list[onnx.SparseTensorProto] | None = None,
    functions: list[onnx.FunctionProto] | None = None,
) -> bytes:
    graph = helper.make_graph(
        nodes or [helper.make_node("Add", ["x", "w"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
        list(weights),
        sparse_initializer=sparse or [],
    )
    made = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
        functions=functions or [],
    )
    data: bytes = made.SerializeToString()
    return data


def paths(model: Path, roots: list[Path]) -> list[Path]:
    with OpenedModel(model, roots) as opened:
        return [file.path for file in find_sidecars(opened)]


class Shelf:
    """A folder with a model and its files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = folder / "m.onnx"

    def put(self, *names: str) -> None:
        for name in names:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes(16))

    def find(self, data: bytes, roots: list[Path] | None = None) -> list[str]:
        self.model.write_bytes(data)
        found = paths(self.model, roots or [self.folder])
        assert all(path.parent.is_relative_to(self.folder) for path in found)
        return [str(path.relative_to(self.folder)) for path in found]

    def fault(self, data: bytes, roots: list[Path] | None = None) -> ErrorInfo:
        self.model.write_bytes(data)
        with pytest.raises(BuildFault) as fault:
            paths(self.model, roots or [self.folder])
        assert fault.value.info.hint
        return fault.value.info


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    folder = tmp_path.resolve() / "root" / "models"
    folder.mkdir(parents=True)
    return Shelf(folder)


def test_a_model_with_its_weights_inside_has_no_sidecars(shelf: Shelf) -> None:
    assert shelf.find(model(tensor(None))) == []


def test_each_file_is_found_once_in_order_of_appearance(shelf: Shelf) -> None:
    shelf.put("b.bin", "a.bin", "deep/er/c.bin")
    data = model(
        tensor("b.bin", "w"), tensor("a.bin", "v"), tensor("b.bin", "u"), tensor("deep/er/c.bin")
    )
    assert shelf.find(data) == ["b.bin", "a.bin", "deep/er/c.bin"]


def test_what_the_onnx_library_saves_is_found(shelf: Shelf) -> None:
    made = onnx.load_model_from_string(model(tensor(None)))
    onnx.save(
        made, shelf.model, save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    found = paths(shelf.model, [shelf.folder])
    assert found == [shelf.folder / "weights.bin"]


def nested(depth: int, location: str) -> NodeProto:
    """Return a node with a graph inside a graph, `depth` times, the innermost with a tensor."""
    graph = helper.make_graph([], "inner", [], [], [tensor(location)])
    for _ in range(depth):
        node = helper.make_node("If", ["c"], ["y"], then_branch=graph)
        graph = helper.make_graph([node], "g", [], [])
    return helper.make_node("If", ["c"], ["y"], then_branch=graph)


def listed(location: str) -> NodeProto:
    node = helper.make_node("Custom", [], ["y"])
    node.attribute.append(helper.make_attribute("values", [tensor(location)]))
    return node


def function(location: str) -> onnx.FunctionProto:
    constant = helper.make_node("Constant", [], ["y"], value=tensor(location))
    return helper.make_function("d", "f", [], ["y"], [constant], [helper.make_opsetid("", 17)])


def function_default(location: str) -> onnx.FunctionProto:
    made = helper.make_function("d", "f", [], [], [], [helper.make_opsetid("", 17)])
    made.attribute_proto.append(helper.make_attribute("value", tensor(location)))
    return made


def sparse(location: str) -> onnx.SparseTensorProto:
    return helper.make_sparse_tensor(tensor(location), tensor(None, "indices"), [4])


def sparse_attribute(location: str) -> NodeProto:
    attribute = AttributeProto(
        name="sparse_value", type=AttributeProto.SPARSE_TENSOR, sparse_tensor=sparse(location)
    )
    node = helper.make_node("Constant", [], ["y"])
    node.attribute.append(attribute)
    return node


PLACES: dict[str, Callable[[str], bytes]] = {
    "initializer": lambda name: model(tensor(name)),
    "constant": lambda name: model(
        nodes=[helper.make_node("Constant", [], ["y"], value=tensor(name))]
    ),
    "list of tensors": lambda name: model(nodes=[listed(name)]),
    "subgraph": lambda name: model(nodes=[nested(0, name)]),
    # protobuf's limit is 100 messages deep; each of these takes three.
    "deepest subgraph": lambda name: model(nodes=[nested(30, name)]),
    "sparse initializer": lambda name: model(sparse=[sparse(name)]),
    "sparse attribute": lambda name: model(nodes=[sparse_attribute(name)]),
    "function": lambda name: model(functions=[function(name)]),
    "default of a function": lambda name: model(functions=[function_default(name)]),
}


@pytest.mark.parametrize("place", PLACES)
def test_wherever_a_tensor_is_its_file_is_found(shelf: Shelf, place: str) -> None:
    shelf.put("w.bin")
    data = PLACES[place]("w.bin")
    onnx.load_model_from_string(data)
    assert shelf.find(data) == ["w.bin"]


def group(number: int, content: bytes = b"") -> bytes:
    return varint(number << 3 | 3) + content + varint(number << 3 | 4)


@pytest.mark.parametrize(
    "odd",
    [
        group(1000),
        group(1000, field(3, b"inside") + group(7) + varint(2 << 3) + b"\x05"),
        field(1000, b"unknown"),
        varint(1000 << 3) + b"\xff" * 9 + b"\x01",
        varint(1000 << 3 | 1) + bytes(8),
        varint(1000 << 3 | 5) + bytes(4),
    ],
    ids=["group", "full group", "bytes", "long number", "eight bytes", "four bytes"],
)
def test_unknown_fields_hide_nothing_from_us_that_the_parser_would_read(
    shelf: Shelf, odd: bytes
) -> None:
    shelf.put("w.bin")
    for make in PLACES.values():
        data = make("w.bin")
        for whole in (odd + data, data + odd):
            onnx.load_model_from_string(whole)
            assert shelf.find(whole) == ["w.bin"]


def test_a_key_written_in_an_unusual_way_hides_nothing(shelf: Shelf) -> None:
    shelf.put("w.bin")
    # Numbers may be written with leading zeros, so that a search for the usual bytes finds nothing.
    unusual = b"\x8a\x00\x88\x00location"
    bare = tensor(None)
    bare.ClearField("raw_data")
    bare.data_location = TensorProto.EXTERNAL
    entry = field(13, unusual + field(2, b"w.bin"))
    attribute = (
        field(1, b"value") + field(5, bare.SerializeToString() + entry) + varint(20 << 3) + b"\x04"
    )
    node = field(2, b"y") + field(4, b"Constant") + field(5, attribute)
    whole = varint(1 << 3) + b"\x09" + field(7, field(1, node))
    read = onnx.load_model_from_string(whole)
    assert "location" in {e.key for e in read.graph.node[0].attribute[0].t.external_data}
    assert shelf.find(whole) == ["w.bin"]


def test_what_a_tensor_says_of_external_data_counts_only_if_it_is_external(shelf: Shelf) -> None:
    stale = tensor("gone.bin")
    stale.data_location = TensorProto.DEFAULT
    stale.raw_data = bytes(16)
    assert shelf.find(model(stale)) == []


def test_a_tensor_given_in_two_parts_is_one_tensor(shelf: Shelf) -> None:
    shelf.put("w.bin")
    whole = tensor("w.bin")
    first, second = TensorProto(), TensorProto()
    first.CopyFrom(whole)
    first.data_location = TensorProto.DEFAULT
    second.data_location = TensorProto.EXTERNAL
    attribute = field(1, b"value") + field(5, first.SerializeToString())
    attribute += field(5, second.SerializeToString())
    node = field(2, b"y") + field(4, b"Constant") + field(5, attribute)
    data = varint(1 << 3) + b"\x09" + field(7, field(1, node))
    merged = onnx.load_model_from_string(data).graph.node[0].attribute[0].t
    assert merged.data_location == TensorProto.EXTERNAL
    assert shelf.find(data) == ["w.bin"]


def test_every_missing_file_is_named(shelf: Shelf) -> None:
    shelf.put("there.bin")
    (shelf.folder / "folder").mkdir()
    names = ["gone.bin", "there.bin", "folder", "folder/gone.bin", "there.bin/gone.bin"]
    info = shelf.fault(model(*[tensor(name, name) for name in names]))
    assert info.code is ErrorCode.MISSING_EXTERNAL_DATA
    assert info.details["files"] == [name for name in names if name != "there.bin"]


def test_a_name_that_can_be_no_file_is_missing(shelf: Shelf) -> None:
    (shelf.folder / "loop").symlink_to("loop")
    for name in ("x" * 300, "y/" * 3000, "loop", "loop/w.bin", "a\0b", "", "."):
        info = shelf.fault(model(tensor(name)))
        assert info.code is ErrorCode.MISSING_EXTERNAL_DATA, name


def test_a_name_that_is_no_text_is_refused(shelf: Shelf) -> None:
    data = model(tensor(b"w.bin")).replace(b"?????", b"w\xff\xfe.b")
    (shelf.folder / os.fsdecode(b"w\xff\xfe.b")).write_bytes(bytes(16))
    info = shelf.fault(data)
    assert info.code is ErrorCode.INVALID_MODEL
    info.message.encode()


@pytest.mark.parametrize("kind", ["absolute", "dots", "dots inside", "link", "folder link"])
def test_data_outside_the_models_folder_is_refused(shelf: Shelf, kind: str) -> None:
    outside = shelf.folder.parent.parent / "w.bin"
    outside.write_bytes(bytes(16))
    shelf.put("sub/w.bin")
    (shelf.folder / "link.bin").symlink_to(outside)
    (shelf.folder / "out").symlink_to(outside.parent)
    name = {
        "absolute": str(outside),
        "dots": "../../w.bin",
        "dots inside": "sub/../sub/w.bin",
        "link": "link.bin",
        "folder link": "out/w.bin",
    }[kind]
    info = shelf.fault(model(tensor(name)))
    assert info.code is ErrorCode.OUTSIDE_ROOTS
    assert info.details["files"] == [name]


def test_a_link_that_stays_in_a_root_is_followed(shelf: Shelf) -> None:
    (shelf.folder.parent / "store").mkdir()
    (shelf.folder.parent / "store" / "w.bin").write_bytes(bytes(16))
    (shelf.folder / "w.bin").symlink_to("../store/w.bin")
    data = model(tensor("w.bin"))
    assert shelf.find(data, [shelf.folder.parent]) == ["w.bin"]
    assert shelf.fault(data, [shelf.folder]).code is ErrorCode.OUTSIDE_ROOTS


def test_a_model_that_is_gone_or_empty_is_survived(shelf: Shelf) -> None:
    assert shelf.find(b"") == []
    shelf.model.unlink()
    with pytest.raises(BuildFault) as fault:
        paths(shelf.model, [shelf.folder])
    assert fault.value.info.code is ErrorCode.MODEL_UNREADABLE


def test_thousands_of_files_are_too_many(shelf: Shelf) -> None:
    data = model(*[tensor(f"{n}.bin") for n in range(10_001)])
    assert shelf.fault(data).code is ErrorCode.INVALID_MODEL


def survives(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        path.write_bytes(data)
        try:
            paths(path, [Path(folder).resolve()])
        except BuildFault as fault:
            fault.info.message.encode()


@given(st.binary(max_size=400))
def test_any_bytes_are_survived(data: bytes) -> None:
    survives(data)


# Bytes that mean something to the walk, so that it gets deep.
meaningful = st.lists(
    st.one_of(
        st.builds(
            field,
            st.sampled_from([1, 2, 5, 6, 7, 10, 11, 13, 14, 15, 22, 25]),
            st.sampled_from([b"", b"location", b"w.bin", b"\x0a\x08location\x12\x01\xff", b"\x00"]),
        ),
        st.builds(group, st.integers(1, 3)),
        st.binary(max_size=3),
    ),
    max_size=8,
).map(b"".join)


@given(meaningful, st.lists(st.sampled_from([1, 5, 6, 7, 13, 15, 22, 25]), max_size=8))
def test_any_nest_of_fields_is_survived(data: bytes, around: list[int]) -> None:
    for number in around:
        data = field(number, data)
    survives(data)


@given(st.sampled_from(sorted(PLACES)), st.data())
def test_a_damaged_model_is_survived(place: str, data: st.DataObject) -> None:
    whole = bytearray(PLACES[place]("w.bin"))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    survives(bytes(whole[: data.draw(st.integers(0, len(whole)))]))


HOSTILE: dict[str, Callable[[int], bytes]] = {
    # Each level is searched for the key once more.
    "nested": lambda size: _nest(b"location" + bytes(size)),
    "numbers": lambda size: b"\x08\x01" * (size // 2),
    "empty nodes": lambda size: field(7, b"\x0a\x00" * (size // 2)),
    "open groups": lambda size: b"\x0b" * size,
    "long numbers": lambda size: b"\x08" + b"\xff" * size,
    "zeros": bytes,
}


def _nest(inner: bytes) -> bytes:
    for level in range(90):
        inner = field((1, 5, 6)[level % 3], inner)
    return field(7, inner)


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_model_costs_time_in_proportion_to_its_size(shelf: Shelf, kind: str) -> None:
    def cost(size: int) -> float:
        data = HOSTILE[kind](size)
        began = time.process_time()
        shelf.find(data)
        return time.process_time() - began

    cost(1000)
    small, large = cost(100_000), cost(800_000)
    # Eight times the size; twenty times the time would be more than proportion and noise.
    assert large < max(20 * small, 0.2)


def test_a_gigabyte_of_weights_inside_a_node_is_not_searched_through(shelf: Shelf) -> None:
    size = 1 << 30
    # A Constant with its value inside, as a sparse file.
    value = head(9, size)
    attribute = head(5, len(value) + size) + value
    node = field(4, b"Constant") + head(5, len(attribute) + size) + attribute
    graph = head(1, len(node) + size) + node
    with shelf.model.open("wb") as file:
        file.write(head(7, len(graph) + size) + graph)
        file.truncate(file.tell() + size)
    began = time.process_time()
    assert paths(shelf.model, [shelf.folder]) == []
    assert time.process_time() - began < 0.2


def test_a_gigabyte_of_weights_inside_is_stepped_over(shelf: Shelf) -> None:
    shelf.put("w.bin")
    before = model(tensor("w.bin"))
    size = 1 << 30
    # An initializer with raw data, as a sparse file: nothing of it is to be read.
    head = varint(9 << 3 | 2) + varint(size)
    graph = varint(5 << 3 | 2) + varint(len(head) + size) + head
    with shelf.model.open("wb") as file:
        file.write(before + varint(7 << 3 | 2) + varint(len(graph) + size) + graph)
        file.truncate(file.tell() + size)
    began = time.process_time()
    assert paths(shelf.model, [shelf.folder]) == [shelf.folder / "w.bin"]
    assert time.process_time() - began < 1
