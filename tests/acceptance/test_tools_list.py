"""What a model reads of the tools is what was reviewed, in both eras and on every transport."""

import json

import pytest

from tests.acceptance.conftest import Serve
from tests.acceptance.renew_tools_list import REVIEWED, as_data

pytestmark = pytest.mark.anyio


async def test_the_tools_are_listed_as_they_were_reviewed(serve: Serve) -> None:
    async with serve() as agent:
        listed = as_data(await agent.client.list_tools())
    assert listed == json.loads(REVIEWED.read_text()), (
        "if this is wanted, run `python -m tests.acceptance.renew_tools_list` and review the change"
    )
