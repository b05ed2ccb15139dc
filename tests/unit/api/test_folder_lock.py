from pathlib import Path

from trt_agent_tools.api.folder_lock import FolderLock
from trt_agent_tools.api.place import LOCK


def test_one_holds_the_lock_at_a_time(tmp_path: Path) -> None:
    one, other = FolderLock(tmp_path / LOCK), FolderLock(tmp_path / LOCK)
    assert one.take()
    assert not other.take()
    assert one.hold()
    one.release()
    assert other.take()
    other.release()


def test_a_lock_whose_file_was_taken_away_is_taken_anew(tmp_path: Path) -> None:
    one, other = FolderLock(tmp_path / LOCK), FolderLock(tmp_path / LOCK)
    assert one.take()
    (tmp_path / LOCK).unlink()
    assert one.hold()
    assert not other.take()
    one.release()


def test_a_lock_whose_file_was_taken_away_and_taken_by_another_is_lost(tmp_path: Path) -> None:
    one, other = FolderLock(tmp_path / LOCK), FolderLock(tmp_path / LOCK)
    assert one.take()
    (tmp_path / LOCK).unlink()
    assert other.take()
    assert not one.hold()
    other.release()
