"""Text from a model or a library cannot leave its line, hide, or grow without bound."""

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_agent_tools.model.untrusted import MAX_LINE, one_line

nasty = st.text(
    st.one_of(
        st.characters(exclude_categories=()),
        st.sampled_from("\x1b[]0;mK\x07\x9b\n\r\t\x00\u2028\u202e\u200b\ufeff\udcff\U000e0041"),
    )
)
# Format characters that are seen: signs that enclose the digits or words after them.
SEEN = set("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
SEEN |= {chr(code) for code in range(0x13430, 0x13440)}


@given(nasty, st.integers(1, 300))
def test_nothing_invisible_gets_through_and_the_length_is_bounded(text: str, limit: int) -> None:
    shown = one_line(text, limit)
    assert len(shown) <= limit
    assert len(shown.splitlines()) <= 1
    unseen = [
        hex(ord(character))
        for character in shown
        if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
        and character not in SEEN
    ]
    assert not unseen


@given(nasty, st.integers(1, 300))
def test_cleaning_twice_is_cleaning_once(text: str, limit: int) -> None:
    shown = one_line(text, limit)
    assert one_line(shown, limit) == shown


@given(nasty)
def test_what_is_shown_can_be_sent_as_utf8(text: str) -> None:
    one_line(text).encode()


@given(st.text(st.characters(categories=("L", "N", "P", "S")), max_size=100))
def test_plain_text_of_any_language_stays_as_it_is(text: str) -> None:
    # Fillers are letters by category, and blank.
    for filler in "\u115f\u1160\u3164\uffa0":
        text = text.replace(filler, "")
    assert one_line(text) == text.strip()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;new title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]0;a title without an end", ""),
        ("a\nb\r\nc", "a b  c"),
        ("fi\u00adle", "fi le"),
        ("\u202egnp.exe", "gnp.exe"),
        ("tag\U000e0041\U000e0042ged", "tag  ged"),
        ("hid\U000e0100den", "hid den"),
        ("  padded  ", "padded"),
        ("", ""),
    ],
)
def test_known_tricks_are_taken_apart(text: str, shown: str) -> None:
    assert one_line(text) == shown


@pytest.mark.parametrize("part", ["long ", "\x1b[", "\x1b]", "\x1b[0", "\x1bP\x1b", "\u200b"])
def test_a_hundred_megabytes_of_tricks_cost_no_more_than_a_line(part: str) -> None:
    text = part * (100_000_000 // len(part))
    began = time.process_time()
    shown = one_line(text)
    assert time.process_time() - began < 0.1
    assert len(shown) <= MAX_LINE


def test_a_cut_is_shown() -> None:
    assert one_line("x" * 11, 10) == "x" * 9 + "…"
    assert one_line("x" * 10, 10) == "x" * 10
