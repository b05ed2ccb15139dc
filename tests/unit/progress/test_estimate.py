"""How long a build takes, by builds that have succeeded: exact where they agree, silent where they say nothing."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trt_agent_tools.model.duration import MAX_S
from trt_agent_tools.progress.estimate import NEWEST, estimate
from trt_agent_tools.progress.past import Estimate, Past, Setting, Shape, Span, Wanted

SETTING = Setting("tensorrt_rtx", "1.7", "cpu")
TRANSFORMER_BLOCK = {"MatMul": 8, "Add": 9, "LayerNormalization": 2, "Reshape": 4, "Softmax": 1}
CONVOLUTION_BLOCK = {"Conv": 3, "BatchNormalization": 3, "Relu": 3, "Add": 1}
LOADING = "Importing TensorRT"
"""As the worker names it."""


def layers(block: dict[str, int], count: int, *, level: int | None = None) -> Shape:
    operators = {name: count * each for name, each in block.items()}
    return Shape(sum(operators.values()), count * 4_000_000, operators, 0, level)


def transformer(blocks: int, *, level: int | None = None) -> Shape:
    return layers(TRANSFORMER_BLOCK, blocks, level=level)


def past(total_s: float, shape: Shape | None = None, *, model: str = "m") -> Past:
    began, ended = 0.1 * total_s, 0.9 * total_s
    return Past(SETTING, model, "o", shape, total_s, (Span("Building", began, ended),))


def wanted(shape: Shape | None = None) -> Wanted:
    return Wanted(SETTING, "m", "o", shape)


def family(blocks: int, *times: tuple[int, float]) -> Estimate | None:
    """Estimate a transformer from others, given as blocks and seconds, newest first."""
    others = [past(total, transformer(count), model=f"t{count}") for count, total in times]
    return estimate(wanted(transformer(blocks)), [], others)


def told(found: Estimate | None) -> Estimate:
    assert found is not None
    return found


@given(st.floats(0.05, 1e6), st.integers(1, 10))
def test_past_builds_that_agree_are_taken_at_their_word(total_s: float, count: int) -> None:
    found = told(estimate(wanted(), [past(total_s)] * count, []))
    assert found.total_s == total_s
    assert found.same
    assert found.builds == min(count, NEWEST)
    assert found.spans == past(total_s).spans


def test_the_middle_of_the_newest_counts() -> None:
    times = [10.0, 12.0, 11.0, 95.0, 11.5, 1000.0, 1000.0, 1000.0]
    assert told(estimate(wanted(), [past(each) for each in times], [])).total_s == 11.5


def test_phases_fill_the_estimate_as_they_filled_the_build_closest_to_it() -> None:
    odd = replace(past(10.0), spans=(Span("Building", 0.0, 10.0),))
    found = told(estimate(wanted(), [past(20.0), odd, past(22.0), past(23.0)], []))
    assert found.total_s == 21.0
    assert found.spans[0].began_s == pytest.approx(2.1)
    assert found.spans[0].ended_s == pytest.approx(18.9)


def test_bounds_narrow_with_builds_that_agree_and_widen_with_those_that_do_not() -> None:
    def width(*times: float) -> float:
        found = told(estimate(wanted(), [past(each) for each in times], []))
        return found.high_s / found.low_s

    assert width(10.0) > 2.5
    assert width(10.0) > width(10.0, 10.0) > width(10.0, 10.0, 10.0, 10.0, 10.0) > 1.1
    assert width(10.0, 14.0, 7.0) > width(10.0, 10.5, 9.5)


def test_a_build_that_was_seen_outweighs_all_that_are_like_it() -> None:
    others = [past(99.0, transformer(12), model=str(each)) for each in range(50)]
    assert told(estimate(wanted(transformer(12)), [past(10.0)], others)).total_s == 10.0


def test_twice_the_layers_of_a_family_take_about_twice_the_time() -> None:
    found = told(family(24, (12, 30.0)))
    assert found.total_s == pytest.approx(60.0, rel=0.05)
    assert not found.same
    assert found.builds == 1
    assert found.low_s < 45.0
    assert found.high_s > 90.0
    assert found.spans[0].ended_s == pytest.approx(0.9 * found.total_s)


def test_the_start_of_a_process_takes_as_long_whatever_the_size_of_the_model() -> None:
    """Two seconds of start, one a block."""
    loading, building = Span(LOADING, 0.5, 2.0), Span("Building", 5.0, 20.0)
    seen = replace(past(26.0, transformer(24), model="t24"), spans=(loading, building))
    found = told(estimate(wanted(transformer(3)), [], [seen]))
    assert found.total_s == pytest.approx(5.0, rel=0.05)
    assert found.low_s < 4.0
    assert found.high_s > 6.5
    assert found.spans[0] == loading
    assert found.spans[1].began_s == pytest.approx(2.0 + 3.0 / 8, rel=0.05)
    assert found.spans[1].ended_s == pytest.approx(2.0 + 18.0 / 8, rel=0.05)


def test_sizes_that_were_seen_teach_how_time_grows() -> None:
    # A start of 10 s, and a second a block: less than in proportion.
    seen = [(count, 10.0 + count) for count in (4, 8, 16, 64)]
    assert told(family(32, *seen)).total_s == pytest.approx(42.0, rel=0.15)
    # A square: more than in proportion.
    square = [(count, 0.1 * count**2) for count in (4, 8, 16, 64)]
    assert told(family(32, *square)).total_s == pytest.approx(102.4, rel=0.25)


def test_one_absurd_time_does_not_bend_the_line() -> None:
    seen = [(6, 6.0), (8, 8.0), (12, 12.0), (16, 30_000.0), (20, 20.0), (24, 24.0), (32, 32.0)]
    assert told(family(14, *seen)).total_s == pytest.approx(14.0, rel=0.2)


def test_many_builds_of_one_model_count_as_one_model() -> None:
    seen = [(4, 4.0)] * 100 + [(16, 16.0), (32, 32.0)]
    assert told(family(24, *seen)).total_s == pytest.approx(24.0, rel=0.1)


def test_a_higher_optimization_level_is_expected_to_take_longer() -> None:
    others = [past(30.0, transformer(12), model="t")]
    high = told(estimate(wanted(transformer(12, level=5)), [], others))
    low = told(estimate(wanted(transformer(12, level=0)), [], others))
    assert low.total_s < 20.0
    assert high.total_s > 40.0


def test_another_family_says_nothing() -> None:
    others = [past(30.0, layers(CONVOLUTION_BLOCK, 16), model="c")]
    assert estimate(wanted(transformer(12)), [], others) is None
    both = [*others, past(8.0, transformer(12), model="t")]
    assert told(estimate(wanted(transformer(12)), [], both)).total_s == pytest.approx(8.0)


def test_a_model_of_another_magnitude_says_nothing() -> None:
    assert family(400, (2, 1.0)) is None


def test_nothing_known_is_no_estimate() -> None:
    assert estimate(wanted(transformer(12)), [], []) is None
    assert estimate(wanted(None), [], [past(8.0, transformer(12))]) is None


WILD = past(12.0, transformer(12))
SOUND = transformer(12)


@pytest.mark.parametrize(
    "broken",
    [
        *(replace(WILD, total_s=each) for each in (math.nan, math.inf, -1.0, 0.0, 5e-324, 1e300)),
        *(replace(WILD, shape=replace(SOUND, nodes=each)) for each in (0, -5, 10**400)),
        *(replace(WILD, shape=replace(SOUND, weight_bytes=each)) for each in (-5, 10**400)),
        *(replace(WILD, shape=replace(SOUND, profile_elements=each)) for each in (-5, 10**400)),
        *(replace(WILD, shape=replace(SOUND, optimization_level=each)) for each in (-9, 10**400)),
        replace(WILD, shape=replace(SOUND, operators={})),
        replace(WILD, shape=replace(SOUND, operators={"MatMul": -1, "Add": 10**400})),
        replace(WILD, shape=replace(SOUND, operators={f"Op{n}": 1 for n in range(100_000)})),
        replace(WILD, shape=None),
    ],
)
def test_a_past_that_cannot_be_is_passed_over(broken: Past) -> None:
    assert estimate(wanted(SOUND), [], [broken]) is None
    sound = past(12.0, SOUND, model="sound")
    assert told(estimate(wanted(SOUND), [], [broken, sound])).total_s == pytest.approx(12.0)


def test_spans_that_cannot_be_are_passed_over() -> None:
    nan = math.nan
    wrong = [(nan, 1.0), (0.0, nan), (-1.0, 1.0), (2.0, 1.0), (1.0, 1.0), (1.0, 99.0)]
    spans = (*(Span("Building", *each) for each in wrong), Span("Writing", 8.0, 9.0))
    found = told(estimate(wanted(), [replace(past(10.0), spans=spans)], []))
    assert found.spans == (Span("Writing", 8.0, 9.0),)


numbers = st.one_of(st.floats(0.1, 1e4), st.floats())
counts = st.one_of(st.integers(1, 10**6), st.integers(), st.just(10**400))
shapes = st.builds(
    Shape,
    nodes=counts,
    weight_bytes=counts,
    operators=st.dictionaries(st.sampled_from(["Add", "Conv", "MatMul"]), counts, max_size=3),
    profile_elements=counts,
    optimization_level=st.none() | st.integers(-1, 12),
)
paths = st.just(LOADING) | st.text(max_size=3)
wild_spans = st.lists(st.builds(Span, paths, numbers, numbers), max_size=4)
wild_pasts = st.builds(
    Past,
    st.just(SETTING),
    st.sampled_from("abcdef"),
    st.sampled_from("op"),
    st.none() | shapes,
    numbers,
    wild_spans.map(tuple),
)
some_pasts = st.lists(wild_pasts, max_size=10)


@settings(deadline=None)
@given(st.none() | shapes, some_pasts, some_pasts)
def test_whatever_was_recorded_an_estimate_is_sound_or_absent(
    shape: Shape | None, same: list[Past], others: list[Past]
) -> None:
    found = estimate(wanted(shape), same, others)
    if found is None:
        return
    assert 0 < found.low_s <= found.total_s <= found.high_s < math.inf
    assert found.total_s <= MAX_S
    assert 1 <= found.builds <= len(same) + len(others)
    for span in found.spans:
        assert 0 <= span.began_s < span.ended_s <= found.total_s * (1 + 1e-9)
