import json
import os
import threading
from pathlib import Path

import pytest

from trt_agent_tools.api.authentication import UnjudgedError
from trt_agent_tools.api.tokens import (
    TOKENS,
    Tokens,
    add_token,
    list_tokens,
    revoke_token,
)
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.supervisor.principals import LOCAL_CALLER, Caller

pytestmark = pytest.mark.anyio


async def test_a_token_names_its_principal_and_policies(tmp_path: Path) -> None:
    made = add_token(tmp_path, "ada", policies=["ci", "overnight"])
    assert await Tokens(tmp_path).caller(made.text) == Caller("token:ada", ("ci", "overnight"))


async def test_no_token_makes_its_bearer_the_local_user(tmp_path: Path) -> None:
    made = add_token(tmp_path, "local", policies=[])
    caller = await Tokens(tmp_path).caller(made.text)
    assert caller
    assert caller.principal != LOCAL_CALLER.principal


async def test_a_reader_notices_tokens_that_are_added_and_revoked(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    assert tokens.all() == []
    first = add_token(tmp_path, "ada", policies=[])
    assert await tokens.caller(first.text)
    second = add_token(tmp_path, "bob", policies=[])
    assert await tokens.caller(second.text)
    revoke_token(tmp_path, first.record.id)
    assert await tokens.caller(first.text) is None
    assert await tokens.caller(second.text)
    (tmp_path / TOKENS).unlink()
    assert await tokens.caller(second.text) is None


def test_the_file_is_the_users_own_and_has_no_secret(tmp_path: Path) -> None:
    made = add_token(tmp_path, "ada", policies=[], label="laptop")
    path = tmp_path / TOKENS
    assert path.stat().st_mode & 0o777 == 0o600
    secret = made.text.split("_", 2)[2]
    assert secret not in path.read_text()
    assert len(secret) >= 43
    assert made.record.label == "laptop"


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_the_files_mode_is_not_the_umasks_to_say(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        add_token(tmp_path, "ada", policies=[])
    finally:
        os.umask(before)
    assert (tmp_path / TOKENS).stat().st_mode & 0o777 == 0o600


def test_tokens_that_are_made_at_once_are_all_kept(tmp_path: Path) -> None:
    def make() -> None:
        for _ in range(5):
            add_token(tmp_path, "ada", policies=[])

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({record.id for record in list_tokens(tmp_path)}) == 20


DAMAGE = {
    "empty": "",
    "cut": '{"version": 1, "tokens": [',
    "no object": "[]",
    "another version": '{"version": 2, "tokens": []}',
    "more than it has": '{"version": 1, "tokens": [], "more": 1}',
    "a token without a hash": '{"version": 1, "tokens": [{"id": "000000000000", "principal": "a"}]}',
}


@pytest.mark.parametrize("kind", DAMAGE)
async def test_a_damaged_file_lets_nobody_in_and_is_not_written_over(
    tmp_path: Path, kind: str
) -> None:
    tokens = Tokens(tmp_path)
    made = add_token(tmp_path, "ada", policies=[])
    assert await tokens.caller(made.text)
    path = tmp_path / TOKENS
    path.write_text(DAMAGE[kind])
    for _ in range(2):
        with pytest.raises(UnjudgedError, match=TOKENS):
            await tokens.caller(made.text)
    for change in (
        lambda: add_token(tmp_path, "bob", policies=[]),
        lambda: revoke_token(tmp_path, made.record.id),
        lambda: list_tokens(tmp_path),
    ):
        with pytest.raises(Refusal, match="damaged") as refused:
            change()
        assert refused.value.info.hint
    assert path.read_text() == DAMAGE[kind]


async def test_a_file_that_others_may_write_to_lets_nobody_in(tmp_path: Path) -> None:
    made = add_token(tmp_path, "ada", policies=[])
    (tmp_path / TOKENS).chmod(0o620)
    with pytest.raises(UnjudgedError, match="chmod 600"):
        await Tokens(tmp_path).caller(made.text)


async def test_a_link_in_the_files_place_lets_nobody_in(tmp_path: Path) -> None:
    made = add_token(tmp_path, "ada", policies=[])
    (tmp_path / TOKENS).rename(tmp_path / "elsewhere")
    (tmp_path / TOKENS).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnjudgedError):
        await Tokens(tmp_path).caller(made.text)


async def test_the_hash_in_the_file_is_no_token(tmp_path: Path) -> None:
    made = add_token(tmp_path, "ada", policies=[])
    (kept,) = json.loads((tmp_path / TOKENS).read_text())["tokens"]
    for text in (kept["sha256"], f"tat_{kept['id']}_{kept['sha256'][:43]}", f"tat_{kept['id']}_"):
        assert await Tokens(tmp_path).caller(text) is None
    assert made.text != kept["sha256"]


@pytest.mark.parametrize("name", ["", "a b", "-a", "a" * 65, "a\n", "ä", "token:a", "../a"])
def test_names_that_are_no_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Refusal) as refused:
        add_token(tmp_path, name, policies=[])
    assert refused.value.info.code is ErrorCode.INVALID_ARGUMENT
    assert not (tmp_path / TOKENS).exists()


def test_a_token_that_there_is_not_cannot_be_revoked(tmp_path: Path) -> None:
    made = add_token(tmp_path, "ada", policies=[])
    with pytest.raises(Refusal) as refused:
        revoke_token(tmp_path, "000000000000")
    assert refused.value.info.details["valid"] == [made.record.id]
