"""What is known of builds that have succeeded, and of one whose length is asked for.

Times are seconds since a build got its device.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """What a model asks of a builder, as far as counting tells.

    `weight_bytes` counts initializers inside the file and beside it; `profile_elements` the elements of all
    inputs at the shapes to optimise for, 0 where no profile was needed.
    """

    nodes: int
    weight_bytes: int
    operators: Mapping[str, int]
    profile_elements: int = 0
    optimization_level: int | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """With what a build is made. Builds of two settings say little about each other's time."""

    backend: str
    version: str
    device: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """A build whose length is asked for.

    `model` is a digest over the model and its sidecars, `options` one over all options that have an effect
    on the engine; None while they are not known.
    """

    setting: Setting
    model: str | None
    options: str | None
    shape: Shape | None


@dataclass(frozen=True, slots=True)
class Span:
    """When one phase ran, by its path of names as `timeline` writes it."""

    path: str
    began_s: float
    ended_s: float


@dataclass(frozen=True, slots=True)
class Past:
    """A build that succeeded; `spans` are its longest phases in order of beginning."""

    setting: Setting
    model: str
    options: str
    shape: Shape | None
    total_s: float
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Estimate:
    """How long a build takes, with the bounds that most such builds stay within.

    `builds` is how many past builds it rests on; `same` whether they were of this very model and options.
    """

    total_s: float
    low_s: float
    high_s: float
    builds: int
    same: bool
    spans: tuple[Span, ...] = ()
