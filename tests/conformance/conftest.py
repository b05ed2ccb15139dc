"""A server of the product for suites that others have written."""

from pathlib import Path

import pytest

from tests.acceptance.transports import Place
from tests.faults.conftest import play

__all__ = ["play"]


@pytest.fixture
def place(root: Path, tmp_path: Path, nothing_left: None) -> Place:
    return Place(root, tmp_path / "state")
