"""Field numbers of ONNX's messages (onnx/onnx.proto3), and which of them lead to a tensor."""

_MODEL_GRAPH, _MODEL_FUNCTIONS = 7, 25
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_INPUT, _GRAPH_OUTPUT, _GRAPH_SPARSE = 1, 5, 11, 12, 15
_FUNCTION_NODE, _FUNCTION_ATTRIBUTE = 7, 11
_NODE_ATTRIBUTE = 5
ATTRIBUTE_TENSOR, _ATTRIBUTE_GRAPH, _ATTRIBUTE_TENSORS, _ATTRIBUTE_GRAPHS = 5, 6, 10, 11
_ATTRIBUTE_SPARSE, _ATTRIBUTE_SPARSES = 22, 23
_SPARSE_VALUES, _SPARSE_INDICES = 1, 2

NODE_OPERATOR, NODE_DOMAIN = 4, 7
TENSOR_DIMENSIONS, TENSOR_TYPE, TENSOR_EXTERNAL, TENSOR_LOCATION = 1, 2, 13, 14

ELEMENT_BITS = {
    **dict.fromkeys((25, 26), 2),
    **dict.fromkeys((21, 22, 23), 4),
    **dict.fromkeys((27, 28), 6),
    **dict.fromkeys((2, 3, 9, 17, 18, 19, 20, 24), 8),
    **dict.fromkeys((4, 5, 10, 16), 16),
    **dict.fromkeys((1, 6, 12), 32),
    **dict.fromkeys((7, 11, 13, 14), 64),
    15: 128,
    8: 0,
}
"""How many bits an element takes, by `TensorProto.DataType`; text has no fixed size."""

TENSOR_DATA = frozenset({4, 5, 6, 7, 9, 10, 11})
"""A tensor's values: `float_data`, `raw_data` and their like."""

GRAPH_ENDS = frozenset({_GRAPH_INPUT, _GRAPH_OUTPUT})

TENSORS = frozenset({"tensor", "initializer"})
"""Messages that are a tensor: an initializer is one of a list, any other may be told in several parts."""

WAYS: dict[str, dict[int, str]] = {
    "model": {_MODEL_GRAPH: "graph", _MODEL_FUNCTIONS: "function"},
    "graph": {_GRAPH_NODE: "node", _GRAPH_INITIALIZER: "initializer", _GRAPH_SPARSE: "sparse"},
    "function": {_FUNCTION_NODE: "node", _FUNCTION_ATTRIBUTE: "attribute"},
    "node": {_NODE_ATTRIBUTE: "attribute"},
    "attribute": {
        ATTRIBUTE_TENSOR: "tensor",
        _ATTRIBUTE_TENSORS: "tensor",
        _ATTRIBUTE_GRAPH: "graph",
        _ATTRIBUTE_GRAPHS: "graph",
        _ATTRIBUTE_SPARSE: "sparse",
        _ATTRIBUTE_SPARSES: "sparse",
    },
    "sparse": {_SPARSE_VALUES: "tensor", _SPARSE_INDICES: "tensor"},
}
"""Which fields of each message lead to a tensor, and to what message."""
