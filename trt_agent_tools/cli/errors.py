"""Shows what error codes mean: one or all of them in the terminal, or as the page docs/errors.md."""

import difflib
from collections.abc import Iterator

from trt_agent_tools.api.status import STATUS
from trt_agent_tools.cli.exit_codes import ExitCode
from trt_agent_tools.model.error_guide import GUIDES, RETRY_MEANING
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.untrusted import one_line

_INTRODUCTION = """\
# Errors

A request that is refused starts nothing and leaves nothing behind. A build that fails tells its error in
its snapshot. Both say a stable `code`, a `message` (what happened), a `hint` (what to do, in this very
case) and `details` (facts for a program, such as the valid names). A refusal also says `retry`.

| over | a refusal is |
|---|---|
| MCP | a tool error with `structuredContent` `{"error": {code, message, hint, details, retry}}`, and one line of text |
| HTTP | the code's status with the body `{"error": {code, message, hint, details, retry}}` |
| the command line | `error: CODE: MESSAGE` and `hint: HINT` on standard error, and exit status 2 |

`trt-agent-tools errors CODE` tells the same in a terminal.
"""


def show_errors(code: str | None, *, markdown: bool) -> int:
    """Print the guide of a code, of all codes if it is None, or the whole page as Markdown.

    Raises:
        Refusal: there is no such code, or one was given together with `markdown`.
    """
    if not markdown:
        codes = list(GUIDES) if code is None else [_known(code)]
        print("\n\n".join(map(guide_text, codes)))
    elif code is None:
        print(markdown_page(), end="")
    else:
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            "--markdown prints the page of all codes",
            "Leave out the code, or --markdown.",
        )
    return ExitCode.OK


def guide_text(code: ErrorCode) -> str:
    """Return what there is to know about a code, as lines for a person."""
    guide = GUIDES[code]
    return (
        f"{code.value}\n"
        f"  when   {guide.when}\n"
        f"  do     {guide.do}\n"
        f"  retry  {guide.retry.value}: {RETRY_MEANING[guide.retry]}\n"
        f"  HTTP   {STATUS[code].value}"
    )


def markdown_page() -> str:
    """Return the text of docs/errors.md."""
    return "\n".join([_INTRODUCTION, *_retry_rows(), "", *_code_rows(), ""])


def _retry_rows() -> Iterator[str]:
    yield "## Trying again"
    yield "| `retry` | meaning |"
    yield "|---|---|"
    for retry, meaning in RETRY_MEANING.items():
        yield f"| `{retry.value}` | {meaning} |"


def _code_rows() -> Iterator[str]:
    yield "## The codes"
    yield "| code | when it comes | what to do | `retry` | HTTP |"
    yield "|---|---|---|---|---|"
    for code, guide in GUIDES.items():
        told = f"{guide.when} | {guide.do} | {guide.retry.value} | {STATUS[code].value}"
        yield f"| `{code.value}` | {told} |"


def _known(text: str) -> ErrorCode:
    names = [code.value for code in GUIDES]
    if text not in names:
        near = difflib.get_close_matches(text, names, n=1)
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"there is no error code {one_line(text, 60)!r}",
            f"Did you mean {near[0]}?" if near else "`trt-agent-tools errors` shows all of them.",
            {"valid": [*names]},
        )
    return ErrorCode(text)
