"""What foretelling the end of a build costs: python -m tests.benchmarks.estimate_cost.

As much is known as a store hands over at most. Figures are processor time.
"""

from tests.benchmarks.evaluate_cost import each_us
from tests.benchmarks.fold_cost import MANY, USUAL, begun
from tests.benchmarks.harness import Row, print_table
from trt_agent_tools.progress.estimate import MOST_SPANS, estimate
from trt_agent_tools.progress.expected import expected
from trt_agent_tools.progress.past import Estimate, Past, Setting, Shape, Span, Wanted
from trt_agent_tools.progress.timeline import LONGEST

SAME, OTHERS = 10, 200
KINDS = 24
"""Kinds of operators in a model; exported ones have 10 to 40."""
NOW = 2.0
MOST_US = 1000.0
SETTING = Setting("tensorrt_rtx", "1.7", "cpu")


def shape(size: int) -> Shape:
    """Return a model of a family, `size` layers deep."""
    operators = {f"Operator{kind}": size * (1 + kind % 5) for kind in range(KINDS)}
    return Shape(sum(operators.values()), size << 20, operators, size << 10, 3)


def past(size: int, spans: int) -> Past:
    """Return a build of a model `size` layers deep."""
    phases = tuple(
        Span(f"Building > Building engine > Phase {number}", float(number), number + 1.0)
        for number in range(spans)
    )
    return Past(SETTING, f"model{size}", "options", shape(size), 100.0 + size, phases)


def main() -> None:
    """Print the table."""
    wanted = Wanted(SETTING, "model", "options", shape(100))
    same = [past(100, LONGEST)] * SAME
    others = [past(size, LONGEST) for size in range(1, OTHERS + 1)]
    known = Estimate(100.0, 80.0, 120.0, 3, same=True, spans=past(100, LONGEST).spans)
    most = Estimate(100.0, 80.0, 120.0, 3, same=True, spans=past(100, MOST_SPANS).spans)
    few, many = begun(USUAL), begun(MANY)
    rows = [
        Row(
            f"estimate, {SAME} builds of the model known",
            each_us(lambda: estimate(wanted, same, others)),
            "us",
            MOST_US,
            1,
        ),
        Row(
            f"estimate, {OTHERS} others known",
            each_us(lambda: estimate(wanted, [], others)),
            "us",
            MOST_US,
            1,
        ),
        Row(
            f"expected, {USUAL} phases, {LONGEST} spans",
            each_us(lambda: expected(known, few, NOW, 0.1)),
            "us",
            digits=1,
        ),
        Row(
            f"expected, {MANY} phases, {MOST_SPANS} spans",
            each_us(lambda: expected(most, many, NOW, 0.1)),
            "us",
            digits=1,
        ),
    ]
    print_table("What foretelling the end of a build costs", rows)


if __name__ == "__main__":
    main()
