"""docs/errors.md and every refusal say of an error when it comes, what to do, and whether to try again."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

import trt_agent_tools
from trt_agent_tools.api.answers import refuse
from trt_agent_tools.api.messages import ErrorAnswer
from trt_agent_tools.api.status import STATUS
from trt_agent_tools.cli.errors import guide_text, markdown_page
from trt_agent_tools.cli.exit_codes import ExitCode
from trt_agent_tools.cli.main import app
from trt_agent_tools.mcp_server.strict import refused
from trt_agent_tools.model.error_guide import GUIDES, RETRY_MEANING, Retry
from trt_agent_tools.model.errors import ErrorCode, ErrorInfo

PACKAGE = Path(trt_agent_tools.__file__).parent
PAGE = PACKAGE.parent / "docs" / "errors.md"
TREES = {path: ast.parse(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
TELLING = {"Refusal": 2, "ErrorInfo": 2, "BuildFault": 2}
"""What tells an error, and the place of its hint among the arguments."""


class AnswerOfBefore(BaseModel):
    """How a client reads a refusal that knows nothing of `retry`."""

    error: ErrorInfo


def told_errors() -> Iterator[tuple[str, ast.expr | None]]:
    """Yield where an error is told in the package, and its hint."""
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            place = TELLING.get(node.func.id)
            if place is not None:
                named = {keyword.arg: keyword.value for keyword in node.keywords}
                hint = node.args[place] if len(node.args) > place else named.get("hint")
                yield f"{path.relative_to(PACKAGE)}:{node.lineno}", hint


def literals(hint: ast.expr) -> Iterator[str]:
    """Yield what a hint can be as far as it stands in the source; "{}" for what is put in."""
    if isinstance(hint, ast.IfExp):
        yield from literals(hint.body)
        yield from literals(hint.orelse)
    elif isinstance(hint, ast.Constant):
        yield str(hint.value)
    elif isinstance(hint, ast.JoinedStr):
        parts = (str(p.value) if isinstance(p, ast.Constant) else "{}" for p in hint.values)
        yield "".join(parts)


def test_every_code_has_a_guide_that_says_all_there_is_to_know() -> None:
    assert set(GUIDES) == set(ErrorCode)
    assert set(RETRY_MEANING) == set(Retry)
    for code, guide in GUIDES.items():
        for sentence in (guide.when, guide.do):
            assert sentence[0].isupper(), (code, sentence)
            assert sentence.endswith("."), (code, sentence)
            assert not set(sentence) & {"\n", "|"}, (code, sentence)


def test_the_page_of_errors_is_what_the_command_prints() -> None:
    printed = CliRunner().invoke(app, ["errors", "--markdown"])
    assert printed.exit_code == ExitCode.OK
    assert printed.output == PAGE.read_text("utf-8"), (
        "trt-agent-tools errors --markdown > docs/errors.md"
    )
    assert markdown_page() == printed.output


@pytest.mark.parametrize("code", ErrorCode)
def test_the_terminal_tells_of_one_code_what_the_page_tells(code: ErrorCode) -> None:
    printed = CliRunner().invoke(app, ["errors", code.value])
    assert printed.exit_code == ExitCode.OK
    assert printed.output == guide_text(code) + "\n"
    row = next(
        line for line in markdown_page().splitlines() if line.startswith(f"| `{code.value}`")
    )
    told = GUIDES[code]
    for text in (told.when, told.do, told.retry.value, str(STATUS[code].value)):
        assert text in row
        assert text in printed.output


def test_without_a_code_the_terminal_tells_of_all_of_them() -> None:
    printed = CliRunner().invoke(app, ["errors"]).output
    assert all(guide_text(code) in printed for code in ErrorCode)


@pytest.mark.parametrize(
    "arguments", [["no_such_code"], ["unknown_bild"], ["internal_error", "--markdown"]]
)
def test_a_code_that_there_is_not_is_refused_with_what_there_is(arguments: list[str]) -> None:
    printed = CliRunner().invoke(app, ["errors", *arguments])
    assert printed.exit_code == ExitCode.USAGE
    assert "hint: " in printed.stderr
    assert ("unknown_build" in printed.stderr) is (arguments == ["unknown_bild"])


@pytest.mark.parametrize("code", ErrorCode)
def test_every_code_comes_from_somewhere(code: ErrorCode) -> None:
    # In a table, or where it is only looked for, a colon follows.
    told = re.compile(rf"ErrorCode\.{code.name}\b(?!:)")
    assert any(told.search(path.read_text("utf-8")) for path in TREES)


def test_every_error_that_is_told_has_a_hint() -> None:
    told = dict(told_errors())
    assert len(told) > 100, "the walk finds what tells errors"
    without = [where for where, hint in told.items() if hint is None]
    assert not without
    for where, hint in told.items():
        assert hint is not None
        for text in literals(hint):
            assert len(text.split()) > 1 or "{}" in text, f"{where}: {text!r} says nothing to do"


@pytest.mark.parametrize("code", ErrorCode)
def test_a_refusal_says_over_every_door_whether_to_try_again(code: ErrorCode) -> None:
    info = ErrorInfo(code, "what happened", "what to do", {"left_s": 1.5, "valid": ["a"]})
    expected = {
        "code": code.value,
        "message": "what happened",
        "hint": "what to do",
        "details": {"left_s": 1.5, "valid": ["a"]},
        "retry": GUIDES[code].retry.value,
    }
    assert refused(info).structured_content == {"error": expected}
    assert json.loads(bytes(refuse(info).body)) == {"error": expected}


def test_clients_and_servers_of_before_and_after_retry_read_each_other() -> None:
    info = ErrorInfo(ErrorCode.QUEUE_FULL, "m", "h", {"n": 1})
    assert AnswerOfBefore.model_validate_json(bytes(refuse(info).body)).error == info
    old = AnswerOfBefore(error=info).model_dump_json()
    error = ErrorAnswer.model_validate_json(old).error
    assert (error.code, error.message, error.hint, error.details) == (
        "queue_full",
        "m",
        "h",
        {"n": 1},
    )
    assert error.retry is None
