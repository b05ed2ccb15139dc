"""Reads the model into a network, and says in the reader's words why it cannot."""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.untrusted import MAX_NAME, one_line
from trt_agent_tools.worker.faults import BuildFault
from trt_agent_tools.worker.library_types import INetworkDefinition, OnnxParser

_UNKNOWN_OPERATOR = re.compile(
    r"plugin not found|no importer registered|unsupported operator", re.IGNORECASE
)
_UNSUPPORTED_NODE = "UNSUPPORTED_NODE"
_SHOWN = 5


def parse_model(parser: OnnxParser, network: INetworkDefinition, model: Path) -> None:
    """Parse `model` from its file: from bytes it would be held in memory twice.

    Raises:
        BuildFault: the parser did not take it. Every unsupported operator is named.
    """
    parsed = parser.parse_from_file(str(model))
    # Copied at once: an error's text dangles when the parser goes or its errors are cleared.
    errors = [_copy(parser, index) for index in range(parser.num_errors)]
    if parsed and not errors:
        if network.num_outputs == 0:
            # Random bytes can be a valid protobuf message that says nothing.
            raise BuildFault(
                ErrorCode.INVALID_MODEL,
                f"{model.name} holds no network: the parser found no output in it",
                "Check that the file is the ONNX model that you mean.",
            )
        return
    unknown = Counter(error.operator for error in errors if error.is_unknown and error.operator)
    if unknown:
        names = sorted(unknown)
        raise BuildFault(
            ErrorCode.UNSUPPORTED_OPERATORS,
            f"the parser does not know {len(names)} of the model's operators: {', '.join(names)}",
            "Export the model with operators that TensorRT supports (often another opset, or "
            "without custom operators), or have the operator allow a plugin library.",
            {
                "operators": names,
                "nodes": [f"{name}: {unknown[name]}" for name in names],
            },
        )
    texts = [
        f"{error.operator}: {error.text}" if error.operator else error.text for error in errors
    ]
    raise BuildFault(
        ErrorCode.INVALID_MODEL,
        f"{model.name} was not accepted by the ONNX parser"
        + (f": {'; '.join(texts[:_SHOWN])}" if texts else ""),
        "Check the file: it may be truncated, no ONNX model, or use what TensorRT does not take.",
        {"errors": texts[:20]},
    )


@dataclass(frozen=True, slots=True)
class _Error:
    operator: str
    text: str
    is_unknown: bool
    """Whether the parser has nothing for the operator, rather than for what the model does with it."""


def _copy(parser: OnnxParser, index: int) -> _Error:
    error = parser.get_error(index)
    operator, text = one_line(error.node_operator(), MAX_NAME), one_line(error.desc(), 500)
    unknown = _UNKNOWN_OPERATOR.search(text) is not None
    if not unknown and error.code().name == _UNSUPPORTED_NODE:
        # Some versions say no more than that: then the parser is asked about the operator itself.
        unknown = hasattr(parser, "supports_operator") and not parser.supports_operator(operator)
    return _Error(operator, text, unknown)
