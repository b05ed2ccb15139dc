"""The parts of what is found in a model. The standard library alone, as the worker's protocol needs."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """An input or output.

    A dimension is its size, or, where it is dynamic, its name ("?" without one). `shape` is absent where
    not even the rank is known. `dtype` is the element type, such as "float32".
    """

    name: str
    dtype: str
    shape: list[int | str] | None = None

    @property
    def is_dynamic(self) -> bool:
        """Whether its shape is known only when the model runs."""
        return self.shape is None or any(isinstance(size, str) for size in self.shape)


@dataclass(frozen=True, slots=True)
class Weights:
    """Initializers and constants, those of subgraphs too: how many, and their size, wherever they are."""

    count: int
    bytes: int
    external_count: int = 0


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A file of external data. `path` is relative to the model's folder."""

    path: str
    bytes: int


_STANDARD = frozenset({"", "ai.onnx"})
"""Names of the domain that ONNX's own operators are in."""


@dataclass(frozen=True, slots=True)
class Operator:
    """What a node asks for. Names are the model's own: clean them before they are shown."""

    domain: str
    type: str

    @property
    def shown(self) -> str:
        """How it is called here: ONNX's own by their type alone."""
        return self.type if self.domain in _STANDARD else f"{self.domain}::{self.type}"


MAX_KINDS = 200
"""So many kinds of operators tell models apart; the rest of a model's are few nodes."""


def most_frequent(operators: Mapping[str, int]) -> dict[str, int]:
    """Return the `MAX_KINDS` most frequent operators, in an order that does not depend on the model's."""
    ranked = sorted(operators.items(), key=lambda entry: (-entry[1], entry[0]))
    return dict(ranked[:MAX_KINDS])
