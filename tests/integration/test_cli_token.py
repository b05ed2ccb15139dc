"""`token add | list | revoke` in processes of their own, as an operator uses them."""

import json
from pathlib import Path

from tests.hosts import command
from trt_agent_tools.api.tokens import TOKENS


def test_a_token_is_printed_once_alone_on_standard_output_and_can_be_revoked(
    tmp_path: Path,
) -> None:
    folder = ("--state-dir", tmp_path / "state")
    added = command("token", "add", "ada", "--policy", "ci", "--label", "laptop", *folder)
    assert added.returncode == 0, added.stderr
    token = added.stdout.removesuffix("\n")
    assert token.startswith("tat_")
    assert "\n" not in token
    assert token not in added.stderr
    listed = command("token", "list", "--json", *folder)
    (record,) = json.loads(listed.stdout)
    assert (record["principal"], record["policies"], record["label"]) == ("ada", ["ci"], "laptop")
    assert record["id"] == token.split("_")[1]
    assert token.split("_", 2)[2] not in listed.stdout
    revoked = command("token", "revoke", record["id"], *folder)
    assert (revoked.returncode, "ada" in revoked.stdout) == (0, True)
    assert command("token", "list", *folder).stdout == ""
    again = command("token", "revoke", record["id"], *folder)
    assert (again.returncode, again.stderr.startswith("error: ")) == (2, True)


def test_a_token_for_a_policy_that_there_is_not_is_not_made(tmp_path: Path) -> None:
    refused = command("token", "add", "ada", "--policy", "none", "--state-dir", tmp_path / "state")
    assert refused.returncode == 2
    assert "unknown_policy" in refused.stderr
    assert not (tmp_path / "state" / TOKENS).exists()
