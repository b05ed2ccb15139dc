"""Patterns for phase paths: what each means, and that no name and no pattern breaks them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_agent_tools.policy.phase_pattern import check_pattern, matches
from trt_agent_tools.policy.policy import MAX_PATTERNS, Policy

PATH = ("Building", "Building engine", "Building engine from subgraph", "Timing tactics")

characters = st.characters(exclude_categories=())
names = st.one_of(
    st.text(characters, max_size=20),
    st.text(st.sampled_from("ab\0\n*?[]!-> "), max_size=20),
)
paths = st.lists(names, max_size=6).map(tuple)
patterns = st.one_of(
    st.text(characters, min_size=1, max_size=30),
    st.text(st.sampled_from("ab*?[]!->^\\ ."), min_size=1, max_size=30),
    st.lists(st.sampled_from(("**", "*", "a", "[ab]", "?")), min_size=1, max_size=6).map(
        " > ".join
    ),
)


@pytest.mark.parametrize(
    "pattern",
    [
        "Timing tactics",
        "Timing *",
        "T?ming tactics",
        "[ST]iming tactics",
        "*",
        "**",
        "Building > Building engine > Building engine from subgraph > Timing tactics",
        "Building > **",
        "** > Timing tactics",
        "Building > ** > Timing tactics",
        "Building > Building engine > ** > Timing*",
        "** > Building engine > **",
        "Building > * > * > *",
    ],
)
def test_a_pattern_means_the_phase(pattern: str) -> None:
    assert matches(check_pattern(pattern), PATH)


@pytest.mark.parametrize(
    "pattern",
    [
        "Building engine",
        "timing tactics",
        "Timing",
        "Timing?tactics?",
        "[!T]iming tactics",
        "Building > Timing tactics",
        "Building > *",
        "Building engine > ** > Timing tactics",
        "Building > Building engine > Building engine from subgraph > Timing tactics > **",
        "Building > * > * > * > *",
    ],
)
def test_a_pattern_means_another_phase(pattern: str) -> None:
    assert not matches(check_pattern(pattern), PATH)


def test_any_path_at_the_end_means_what_is_inside_not_the_phase_itself() -> None:
    assert not matches("Building > **", ("Building",))
    assert matches("Building > **", ("Building", "Building engine"))


def test_one_character_never_stands_for_the_step_to_the_next_phase() -> None:
    for pattern in ("a?b", "a*b", "a[!x]b", "a**b"):
        assert not matches(pattern, ("a", "b"))
        assert matches(pattern, ("a\0b",))


def test_a_bracket_can_be_written() -> None:
    assert matches(check_pattern("{ForeignNode[[]*]}"), ("{ForeignNode[a...b]}",))
    assert matches(check_pattern("[[]0]"), ("[0]",))


@given(paths.filter(bool))
def test_the_pattern_for_everything_matches_everything(path: tuple[str, ...]) -> None:
    assert matches("**", path)
    assert matches("*", path)
    assert matches("** > **", path)


@given(patterns, paths)
def test_no_pattern_and_no_path_raises(pattern: str, path: tuple[str, ...]) -> None:
    assert matches(pattern, path) in {True, False}


@given(patterns)
def test_a_pattern_is_taken_or_refused_in_words(pattern: str) -> None:
    try:
        taken = check_pattern(pattern)
    except ValueError as error:
        told = str(error)
    else:
        assert taken == pattern
        return
    assert told.startswith("a phase pattern")


@given(st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=6))
def test_a_path_of_plain_names_matches_itself_alone(path: list[str]) -> None:
    pattern = " > ".join(["**", *path])
    assert matches(pattern, tuple(path))
    assert not matches(" > ".join(["**", *path, "d"]), tuple(path))


@given(
    st.lists(st.sampled_from(("**", "*", "a", "b", "a*")), min_size=2, max_size=5),
    st.lists(st.sampled_from(("a", "b", "ab")), min_size=1, max_size=6),
)
def test_a_longer_pattern_is_read_as_a_regular_expression_would_be(
    parts: list[str], path: list[str]
) -> None:
    expression = ""
    for number, part in enumerate(parts):
        if part == "**":
            count = "+" if number == len(parts) - 1 else "*"
            expression += f"(?:[ab]+/){count}"
        else:
            expression += part.replace("*", "[ab]*") + "/"
    expected = re.fullmatch(expression, "".join(f"{name}/" for name in path)) is not None
    assert matches(" > ".join(parts), tuple(path)) == expected


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (" > a", "joined by"),
        ("a >  > b", "joined by"),
        ("a>b", "joined by"),
        ("a > ", "joined by"),
        ("[ab", "bracket"),
        ("a]b[", "bracket"),
        ("[]", "bracket"),
        ("[!]", "bracket"),
        ("a\nb", "control"),
        ("a\0b", "control"),
    ],
)
def test_a_malformed_pattern_is_refused(pattern: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_pattern(pattern)
    with pytest.raises(ValueError, match=words):
        Policy.model_validate({"rules": {"phase_time": {pattern: "1h"}}})


def test_a_policy_has_a_bounded_number_of_patterns() -> None:
    with pytest.raises(ValueError, match=str(MAX_PATTERNS)):
        Policy.model_validate(
            {"rules": {"phase_time": {f"p{number}": 1 for number in range(MAX_PATTERNS + 1)}}}
        )


def test_a_hostile_pattern_is_judged_at_once() -> None:
    pattern = check_pattern(" > ".join(["**", "*a*a*a*a*a*a*a*a*b", "**"] * 8))
    assert not matches(pattern, ("a" * 200,) * 30)
