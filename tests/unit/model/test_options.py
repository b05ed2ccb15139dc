"""Build options: sizes and shapes as people write them, and nothing that is not declared."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from trt_agent_tools.model.options import BuildOptions, ShapeRange, parse_size

PEBIBYTE = 2**50

dimensions = st.lists(st.integers(0, 2**31 - 1), max_size=8)


@pytest.mark.parametrize(
    ("written", "size"),
    [
        (0, 0),
        (512, 512),
        ("512", 512),
        ("1 B", 1),
        ("1kB", 1000),
        ("1KiB", 1024),
        ("512MiB", 512 * 1024**2),
        ("4GB", 4 * 1000**3),
        (" 1.5 gib ", 3 * 2**29),
        (PEBIBYTE, PEBIBYTE),
    ],
)
def test_a_size_is_read_as_people_write_it(written: object, size: int) -> None:
    assert parse_size(written) == size


@pytest.mark.parametrize(
    "written",
    [
        "",
        "MiB",
        "4 gigabytes",
        "-1MB",
        "1_000",
        "0x10",
        "4TB",
        "1e9",
        True,
        None,
        1.5,
        # Letters that are the same as i and K when case is ignored.
        "4K\u0131B",
        "4G\u0130B",
        "4\u212aB",
    ],
)
def test_what_is_no_size_is_refused_with_an_example(written: object) -> None:
    with pytest.raises(ValueError, match="512MiB"):
        parse_size(written)


@pytest.mark.parametrize("written", [-1, PEBIBYTE + 1, 10**400, "1048577GiB", "9" * 38 + "GB"])
def test_a_negative_or_absurd_size_is_refused_not_crashed_on(written: object) -> None:
    with pytest.raises(ValueError, match="1 PiB"):
        parse_size(written)


def test_a_text_too_long_for_a_size_is_refused_without_being_repeated() -> None:
    with pytest.raises(ValueError, match="512MiB") as refused:
        parse_size("9" * 100_000)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    "options",
    [
        {"memory_pool_limits": {f"POOL{number}": 1 for number in range(65)}},
        {"tactic_sources": ["CUBLAS"] * 65},
        {"plugins": ["x" * 4097]},
    ],
    ids=lambda options: next(iter(options)),
)
def test_more_than_any_library_has_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="at most"):
        BuildOptions.model_validate(options)


@given(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(),
        st.text("0123456789. KMGkmgiIbB\u0131\u0130\u212a", max_size=20),
    )
)
def test_any_value_is_a_whole_size_in_range_or_a_value_error(value: object) -> None:
    try:
        size = parse_size(value)
    except ValueError:
        return
    assert type(size) is int
    assert 0 <= size <= PEBIBYTE


@given(st.integers(0, PEBIBYTE))
def test_a_whole_number_of_bytes_is_never_rounded(size: int) -> None:
    assert parse_size(size) == parse_size(str(size)) == parse_size(f"{size}B") == size


@given(dimensions, dimensions, dimensions)
def test_a_shape_range_is_ordered_on_every_axis_or_refused(
    low: list[int], best: list[int], high: list[int]
) -> None:
    good = len(low) == len(best) == len(high) and all(
        a <= b <= c for a, b, c in zip(low, best, high, strict=True)
    )
    try:
        ShapeRange(min=low, opt=best, max=high)
    except ValidationError:
        assert not good
    else:
        assert good


@given(st.data(), st.integers(0, 8))
def test_every_ordered_shape_range_is_taken(data: st.DataObject, rank: int) -> None:
    axes = [sorted(data.draw(st.tuples(*[st.integers(0, 2**31 - 1)] * 3))) for _ in range(rank)]
    low, best, high = ([axis[i] for axis in axes] for i in range(3))
    taken = ShapeRange(min=low, opt=best, max=high)
    assert (taken.min, taken.opt, taken.max) == (low, best, high)


def test_a_wrong_shape_range_is_told_by_its_axis() -> None:
    with pytest.raises(ValidationError, match=r"dimension 1 .* got 8, 4, 16"):
        ShapeRange(min=[1, 8], opt=[1, 4], max=[1, 16])


@pytest.mark.parametrize("shape", [[-1], [2**31], [1] * 9, ["1"], [1.0], [True], None])
def test_a_dimension_is_a_whole_number_that_tensorrt_can_hold(shape: object) -> None:
    with pytest.raises(ValidationError):
        ShapeRange.model_validate({"min": shape, "opt": shape, "max": shape})


def test_one_profile_needs_no_list_around_it() -> None:
    profile = {"x": {"min": [1], "opt": [2], "max": [4]}}
    alone = BuildOptions.model_validate({"profiles": profile})
    assert alone == BuildOptions.model_validate({"profiles": [profile]})
    assert len(alone.profiles) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"fp16": True},
        {"builder_optimization_level": "3"},
        {"builder_optimization_level": True},
        {"builder_optimization_level": -1},
        {"flags": "TF32"},
        {"flags": [""]},
        {"memory_pool_limits": {"WORKSPACE": "lots"}},
        {"profiles": {}},
        {"profiles": [{}]},
        {"overwrite": "yes"},
        {"timing_cache": ""},
        "fast",
    ],
)
def test_unknown_options_and_wrong_types_are_refused(options: object) -> None:
    with pytest.raises(ValidationError):
        BuildOptions.model_validate(options)


def test_options_survive_the_way_to_the_worker() -> None:
    options = BuildOptions.model_validate(
        {
            "memory_pool_limits": {"WORKSPACE": "4GiB"},
            "profiles": {"x": {"min": [1, 3], "opt": [4, 3], "max": [8, 3]}},
            "flags": ["TF32"],
            "tactic_sources": [],
        }
    )
    assert options.memory_pool_limits == {"WORKSPACE": 4 * 2**30}
    assert BuildOptions.model_validate_json(options.model_dump_json()) == options
