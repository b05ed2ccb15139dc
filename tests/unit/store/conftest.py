"""A journal to write to."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from trt_agent_tools.store.journal import Journal


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    opened = await Journal.open(tmp_path)
    yield opened
    await opened.aclose()
