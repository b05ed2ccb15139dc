"""How the API answers and refuses: JSON without what is absent, errors with code and hint."""

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from trt_agent_tools.api.messages import ErrorAnswer
from trt_agent_tools.api.status import STATUS
from trt_agent_tools.model.error_guide import guided
from trt_agent_tools.model.errors import ErrorCode, ErrorInfo, Refusal
from trt_agent_tools.model.untrusted import one_line

_log = logging.getLogger(__name__)


def answer(model: BaseModel, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Return a model as an answer."""
    return Response(model.model_dump_json(exclude_none=True), status, media_type="application/json")


def refuse(error: ErrorInfo, status: HTTPStatus | None = None) -> Response:
    """Return an error as an answer, with the status of its code if no other is given."""
    return answer(ErrorAnswer(error=guided(error)), status or STATUS[error.code])


def add_error_handlers(app: FastAPI) -> None:
    """Let every error leave the application as an `ErrorAnswer`."""
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _not_served)
    app.add_exception_handler(Exception, _fault)


def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)  # noqa: S101  (it is registered for nothing else)
    return refuse(error.info)


def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101  (likewise)
    return refuse(
        ErrorInfo(
            ErrorCode.INVALID_ARGUMENT,
            _first(error.errors()),
            "Correct the request and send it again; /openapi.json tells what is taken.",
        )
    )


def _first(errors: Sequence[Mapping[str, object]]) -> str:
    first = errors[0]
    place = first.get("loc")
    name = ".".join(map(str, place)) if isinstance(place, tuple | list) else "request"
    return one_line(f"{name}: {str(first.get('msg')).removeprefix('Value error, ')}", 500)


def _not_served(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101  (likewise)
    answered = refuse(
        ErrorInfo(
            ErrorCode.INVALID_ARGUMENT,
            one_line(error.detail, 500),
            "/openapi.json tells which paths and methods there are.",
        ),
        HTTPStatus(error.status_code),
    )
    answered.headers.update(error.headers or {})
    return answered


def _fault(request: Request, error: Exception) -> Response:
    _log.error("%s %s", request.method, request.url.path, exc_info=error)
    return refuse(
        ErrorInfo(
            ErrorCode.INTERNAL_ERROR,
            "the supervisor failed while it answered",
            "Its log has the trace; please report it.",
        )
    )
