from typing import cast

import pytest

from trt_agent_tools.cli.known_builds import whole_id
from trt_agent_tools.model.errors import Refusal
from trt_agent_tools.model.service import BuildService
from trt_agent_tools.model.snapshot import BuildList, BuildSummary
from trt_agent_tools.model.states import State

pytestmark = pytest.mark.anyio


class Listing:
    """Knows builds by their ids."""

    def __init__(self, *ids: str) -> None:
        self._ids = ids

    async def list_builds(self, *, limit: int) -> BuildList:
        builds = [
            BuildSummary(
                build_id=build_id, state=State.QUEUED, model="m", elapsed_s=0, created_at=""
            )
            for build_id in self._ids
        ]
        return BuildList(builds=builds[:limit])


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("b_1", "b_12"),
        ("b_12", "b_12"),
        ("b_2", "b_2"),  # one id is the beginning of another
        ("b_9", "b_9"),  # perhaps an older one: the supervisor knows
    ],
)
async def test_a_beginning_that_no_other_has_stands_for_the_id(text: str, whole: str) -> None:
    service = cast("BuildService", Listing("b_12", "b_2", "b_23"))

    assert await whole_id(service, text) == whole


async def test_a_beginning_of_several_is_refused_and_names_them() -> None:
    service = cast("BuildService", Listing("b_12", "b_2", "b_23"))

    with pytest.raises(Refusal, match=r"3 builds begin with 'b_': b_12, b_2, b_23"):
        await whole_id(service, "b_")
