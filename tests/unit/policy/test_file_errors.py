"""What is wrong in a policy file is told so that it can be mended: line, key, valid values."""

from pathlib import Path

import pytest

from trt_agent_tools.model.errors import ErrorInfo, Refusal
from trt_agent_tools.policy.file_errors import MAX_PROBLEMS
from trt_agent_tools.policy.files import load_policy

RULES = "[rules]\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mine.toml"


def refusal(file: Path, text: str) -> ErrorInfo:
    file.write_text(text, "utf-8")
    with pytest.raises(Refusal) as refused:
        load_policy(str(file))
    return refused.value.info


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (
            RULES + 'biuld_time = "2h"',
            2,
            "rules.biuld_time: there is no such rule; did you mean build_time?",
        ),
        (
            RULES + 'biuld_time = "2h"',
            2,
            "(valid: queue_time, startup_time, build_time, gpu_time, ",
        ),
        ('build_time = "2h"', 1, "build_time: there is no such key here; it belongs in [rules]"),
        (RULES + "warn_at = 0.5", 2, "it belongs in [escalation]"),
        (RULES + 'description = "x"', 2, "it belongs above all tables"),
        ("[rulez]\nsilent = 1", 1, "did you mean rules?"),
        ("[escalation]\nwarnat = 0.5", 2, "did you mean warn_at?"),
        ("[session]\nbuilds = 3", 2, "(valid: gpu_time, concurrent_builds, queued_builds, "),
        (RULES + 'silent = { limit = "1h", modus = "observe" }', 2, "silent.modus: there is no"),
        (
            RULES + 'silent = { limit = "1h", modus = "observe" }',
            2,
            "(valid: mode, warn_at, limit, ceiling)",
        ),
        (
            '[rules.phase_time]\n"a" = { limit = "1h", ceiling = "2h" }',
            2,
            "(valid: mode, warn_at, limit)",
        ),
        (
            '[rules.host_memory]\nlimit = "1GiB"\nceiling = "2GiB"',
            3,
            "(valid: mode, warn_at, limit)",
        ),
    ],
)
def test_an_unknown_key_is_told_with_the_valid_ones(
    file: Path, text: str, line: int, words: str
) -> None:
    info = refusal(file, text)
    assert info.message.startswith(f"{file}: line {line}: ")
    assert words in info.message
    assert info.details["line"] == line


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (RULES + '\nsilent = "2 years"', 3, "'2 years' is no duration; write it as \"90s\""),
        (RULES + 'silent = "1h"\nqueue_time = "10 min"', 3, "(units ms, s, m, h, d)"),
        (RULES + "silent = -1", 2, "rules.silent: a duration is finite and not negative"),
        (RULES + "silent = nan", 2, "finite"),
        (RULES + 'silent = "0s"', 2, "rules.silent: Input should be greater than 0"),
        (RULES + 'silent = "400d"', 2, "a duration is at most 31622400 s (366 days)"),
        (RULES + "silent = true", 2, "a duration is a number of seconds or text"),
        (RULES + "silent = 1979-05-27", 2, "a duration is a number of seconds or text"),
        (RULES + 'silent = ["1h"]', 2, "a duration is a number of seconds or text"),
        (RULES + 'host_memory = "12 parsec"', 2, 'is no size; write it as "512MiB"'),
        (RULES + "host_memory = 0", 2, "greater than 0"),
        (RULES + "projected_overrun = 0.5", 2, "greater than or equal to 1"),
        (RULES + "projected_overrun = true", 2, "valid number"),
        (RULES + 'silent = { mode = "observe" }', 2, "rules.silent.limit: is missing"),
        (
            '[rules.silent]\nlimit = "1h"\nmode = "watch"',
            3,
            "mode: Input should be 'enforce' or 'observe'",
        ),
        (
            '[rules.silent]\nlimit = "1h"\nceiling = "30m"',
            1,
            "ceiling (30m00s) must not be below limit (1h00m)",
        ),
        ("[escalation]\nwarn_at = 1", 2, "escalation.warn_at: Input should be less than 1"),
        ("[escalation]\nwarn_at = 0", 2, "greater than 0"),
        ("[escalation]\nwarn_at = nan", 2, "finite"),
        ('[escalation]\nwarn_at = "half"', 2, "valid number"),
        ('[escalation]\ncancel_grace = "2h"', 2, "less than or equal to 3600"),
        ("[session]\nconcurrent_builds = 0", 2, "greater than or equal to 1"),
        ("[session]\nconcurrent_builds = 1.5", 2, "valid integer"),
        ("[session]\nconcurrent_builds = true", 2, "valid integer"),
        ("rules = 3", 1, "rules: must be a table"),
        (RULES + "phase_time = 3", 2, "must be a table"),
        ('[rules.phase_time]\n"a >b" = "1h"', 2, "names joined by"),
        ('[rules.phase_time]\n"a > " = "1h"', 2, "names joined by"),
        ('[rules.phase_time]\n"a[b" = "1h"', 2, "bracket"),
        ('[rules.phase_time]\n"a\\u0007" = "1h"', 2, "control"),
    ],
)
def test_a_value_that_is_not_valid_is_told_by_line_and_key(
    file: Path, text: str, line: int, words: str
) -> None:
    info = refusal(file, text)
    assert info.message.startswith(f"{file}: line {line}: ")
    assert words in info.message


@pytest.mark.parametrize(
    "text",
    [
        'rules.silent = "x"',
        'rules = { silent = "x" }',
        '"rules"."silent" = "x"',
        "[rules]\nsilent = 'x'",
        '[ rules ] # the rules\n"sil\\u0065nt" = "x"',
        '[rules.silent]\nlimit = "x"',
        'description = """\nsilent = "y"\n"""\nrules.silent = "x"',
        '\ufeffrules.silent = "x"',
        '# silent = "y"\r\nrules.silent = "x"',
    ],
)
def test_the_line_is_found_however_the_key_is_written(file: Path, text: str) -> None:
    info = refusal(file, text)
    line = info.details["line"]
    assert isinstance(line, int)
    assert "x" in text.splitlines()[line - 1]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("[rules\n", "line 1: column 7: "),
        ('[rules]\nsilent = "1h\n', "line 2: column 13: "),
        ("[rules]\nsilent = 1h\n", "line 2: column 11: "),
    ],
)
def test_what_is_no_toml_is_told_by_line_and_column(file: Path, text: str, where: str) -> None:
    assert refusal(file, text).message.startswith(f"{file}: {where}")


def test_no_line_is_told_where_none_is_known(file: Path) -> None:
    info = refusal(file, "a = 1\na = 2")
    assert "line" not in info.details
    assert info.message.startswith(f"{file}: Cannot overwrite")
    assert "line" not in refusal(file, "a = " + "9" * 5000).details


def test_every_problem_is_told_in_the_order_of_lines(file: Path) -> None:
    info = refusal(file, '[session]\nx = 1\n[rules]\nsilent = "y"\nbuild_time = 0\n')
    assert info.message.endswith("(and 2 more)")
    problems = info.details["problems"]
    assert isinstance(problems, list)
    assert [problem.split(":")[0] for problem in problems] == ["line 2", "line 4", "line 5"]


def test_a_file_full_of_mistakes_does_not_make_a_long_answer(file: Path) -> None:
    text = "".join(f'k{number} = "{"x" * 1000}"\n' for number in range(500))
    info = refusal(file, text)
    assert len(info.message) < 1000
    problems = info.details["problems"]
    assert isinstance(problems, list)
    assert len(problems) == MAX_PROBLEMS
    value = refusal(file, f'{RULES}silent = "{"x" * 100_000}"')
    assert len(value.message) < 1000


def test_a_file_cannot_colour_or_clear_the_terminal(file: Path) -> None:
    info = refusal(file, '"\\u001b[2Jred" = 1')
    assert "\x1b" not in info.message
