"""Reads the longer texts that a caller may ask for: manifests, recorded events, policy files."""

import json
import logging
from pathlib import Path

from trt_agent_tools.model.documents import PolicyDocument, PolicyList, Recording
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.manifest import Manifest
from trt_agent_tools.model.snapshot import Snapshot
from trt_agent_tools.policy.files import KnownPolicy, known_policies, load_policy
from trt_agent_tools.supervisor.artefact import read_manifest
from trt_agent_tools.supervisor.log_file import read_end

RECORD_NAME = "events.jsonl"
"""Of what a build's worker sent, in the build's folder."""

MAX_EVENTS = 1000
"""So many events of a recording are given at most."""

_MAX_MANIFEST_BYTES = 8 * 1024 * 1024
"""A larger one is verified, but not sent around."""

_log = logging.getLogger(__name__)


def manifest_of_build(snapshot: Snapshot) -> Manifest:
    """Return the manifest of a build's engine.

    Raises:
        Refusal: the build has no engine, or its manifest is not there any more (`NO_MANIFEST`).
    """
    build_id = snapshot.build_id
    if snapshot.result is None:
        raise Refusal(
            ErrorCode.NO_MANIFEST,
            f"build {build_id} has no engine: it is {snapshot.state.value}",
            "Name a build that has succeeded: its manifest is written beside the engine."
            if snapshot.ended
            else "Wait until it has succeeded: get_progress with wait_s.",
            {"state": snapshot.state.value},
        )
    path = snapshot.result.manifest
    try:
        found = read_manifest(Path(path), build_id, at_most=_MAX_MANIFEST_BYTES)
    except (OSError, ValueError) as error:
        # ValueError: a path that no file system takes.
        raise _no_manifest(build_id, path, f"it cannot be read: {error}") from error
    if found is None:
        raise _no_manifest(build_id, path, "it is gone, or another file has its place")
    return found


def read_recording(path: Path, build_id: str, *, tail: int) -> Recording:
    """Return the last `tail` events at `path`, none if nothing was recorded.

    A line that is no JSON object, such as the last one of a worker that was killed, is left out.
    What is not ASCII in a line comes as JSON escapes: there is nothing in it that cannot be seen.

    Raises:
        OSError: the recording is there and cannot be read.
    """
    end = read_end(path)
    events = [event for event in map(_event, end.lines) if event is not None]
    return Recording(
        build_id=build_id, lines=events[-tail:], left_out=end.left_out(len(events), tail)
    )


def readable_policies(default: str) -> PolicyList:
    """Return the policies that can be named, each with its file's text; `default` is a name or a file.

    One whose file is not valid is left out and told of in the log: naming it is refused with the reason.
    """
    found = (_document(known, default) for known in known_policies())
    return PolicyList(policies=[document for document in found if document is not None])


def _no_manifest(build_id: str, path: str, why: str) -> Refusal:
    return Refusal(
        ErrorCode.NO_MANIFEST,
        f"the manifest of build {build_id} is not to be had: {why}",
        "Its snapshot still tells the engine's digest; build again for a new manifest.",
        {"manifest": path},
    )


def _event(line: str) -> str | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return json.dumps(event, separators=(",", ":")) if isinstance(event, dict) else None


def _document(known: KnownPolicy, default: str) -> PolicyDocument | None:
    try:
        policy = load_policy(str(known.path))
        text = known.path.read_text("utf-8-sig")
    except (Refusal, OSError) as error:
        _log.warning("policy %s is left out: %s", known.name, error)
        return None
    return PolicyDocument(
        name=known.name,
        description=policy.description,
        is_default=known.name == default,
        toml=text,
    )
