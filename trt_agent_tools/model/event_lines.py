"""Reads the lines that a worker writes. A module of its own: the worker itself starts without it."""

from typing import Annotated

from pydantic import Field, TypeAdapter

from trt_agent_tools.model.events import WorkerEvent

WORKER_EVENT: TypeAdapter[WorkerEvent] = TypeAdapter(
    Annotated[WorkerEvent, Field(discriminator="type")]
)
"""Validates one line of the worker protocol."""
