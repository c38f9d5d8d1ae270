"""Names of the field and how they are built: ids, capture keys, snapshot and anchor names, places in a snapshot.

Pure string functions. Whether a name exists on disk is the store's business; whether it is *right* there is the rules'.
Source: participant-protocol section 1, snapshot-layout sections 1 and 2.
"""

from __future__ import annotations

import hashlib
import re

ID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
"""Form of rollout ids, server names and checkpoint ids; use with `match`."""

MAX_CHECKPOINT_ID_CHARS = 128
HEX64_PATTERN = re.compile(r"[0-9a-f]{64}\Z")

SNAPSHOT_NAME = re.compile(r"snapshot_([0-9]+)\Z")
TMP_SNAPSHOT_NAME = re.compile(r"tmp_snapshot_([0-9]+)\Z")
TRASH_SNAPSHOT_NAME = re.compile(r"trash_snapshot_([0-9]+)\Z")
STEP_NAME = re.compile(r"step_([0-9]+)\Z")
MAX_SNAPSHOT_NUMBER = 10**12 - 1
"""Numbers above are nobody's count (a copy by hand, say), and soon too long for a journal: none is given, none is counted."""
SNAPSHOTS_FOLDER = "rollout_snapshots"
BOOTSTRAP_FOLDER = "bootstrap"
CONTROL_FOLDER = ".ckptctl"
JOURNAL_FOLDER = "journal"
"""In the control folder."""
JOURNAL_NAME = re.compile(r"([0-9]{6,12})-([a-z]+)\.jsonl\Z")
"""Number and kind of a transaction."""
CHECKSUMS_FILE = "ckptctl-checksums.json"
TORN_WRITE_NAME = re.compile(r"\.ckptctl-[0-9a-f]{16}\.tmp\Z")
"""What a write of ours leaves behind when it is killed."""

MODEL, AGENT, RESOURCES = "responses_api_models", "responses_api_agents", "resources_servers"
COMPONENTS = (AGENT, MODEL, RESOURCES)


def is_id(text: str) -> bool:
    """Whether `text` has the id form."""
    return ID_PATTERN.match(text) is not None


def is_checkpoint_id(text: str) -> bool:
    """Whether `text` may be a checkpoint id: id form, 1 to 128 characters."""
    return len(text) <= MAX_CHECKPOINT_ID_CHARS and is_id(text)


def is_digest(text: str) -> bool:
    """Whether `text` is a SHA-256 as 64 lower-case hex digits."""
    return HEX64_PATTERN.match(text) is not None


def path_problem(text: str) -> str | None:
    """Why `text` is no path inside a snapshot, relative to it; None when it is one."""
    if not text:
        return "must be a relative path, not empty"
    if text.startswith("/"):
        return "must be relative to the snapshot"
    if ".." in text.split("/"):
        return "must not contain `..`"
    return None if text.isprintable() else "must not contain control characters"


def is_file_name(text: str) -> bool:
    """Whether `text` names one file in a folder: no separator, not `.` or `..`, no control character."""
    return text not in {"", ".", ".."} and "/" not in text and text.isprintable()


def rollout_id(group_id: str, generation_index: int) -> str:
    """The logical rollout id of a sibling."""
    return f"{group_id}_g{generation_index}"


def capture_key(rollout: str, attempt_index: int) -> str:
    """The capture key of an attempt. Not reversible: a rollout id may itself end in `-a3`, so always carry the pair."""
    return rollout if attempt_index == 0 else f"{rollout}-a{attempt_index}"


def capture_key_belongs(key: str, rollout: str, attempt_index: int) -> bool:
    """Whether `key` is the capture key of some attempt k <= `attempt_index` of `rollout`."""
    if key == rollout:
        return True
    prefix = f"{rollout}-a"
    tail = key[len(prefix) :] if key.startswith(prefix) else ""
    return (
        tail.isascii()
        and tail.isdigit()
        and not tail.startswith("0")
        and int(tail[:9]) <= attempt_index
        and len(tail) < 10
    )


def staging_key(capture: str, model_call_id: str) -> str:
    """The key of a staged row as NeMo-RL builds it."""
    return f"{capture}/{model_call_id}"


def snapshot_number(name: str) -> int | None:
    """The sequence number of a published snapshot's directory name, or None. Any digit count is read."""
    found = SNAPSHOT_NAME.match(name)
    number = int(found.group(1)) if found and len(name) < 40 else None
    return None if number is None or number > MAX_SNAPSHOT_NUMBER else number


def is_uncounted(name: str) -> bool:
    """Whether a directory is named as a published snapshot, but with a number that is not counted. NeMo-RL counts it."""
    return SNAPSHOT_NAME.match(name) is not None and snapshot_number(name) is None


def snapshot_name(number: int) -> str:
    """The directory name that is written: six digits, zero padded."""
    return f"snapshot_{number:06d}"


def tmp_snapshot_name(number: int) -> str:
    """The name of a snapshot that is being written."""
    return f"tmp_{snapshot_name(number)}"


def step_number(name: str) -> int | None:
    """The train step of a trainer anchor's directory name, or None."""
    found = STEP_NAME.match(name)
    return int(found.group(1)) if found and len(name) < 40 else None


def agent_folder(participant_name: str) -> str:
    """The agent's folder relative to the snapshot: any 1..512 byte name is legal, hence the hash."""
    return f"agent/instance-{hashlib.sha256(participant_name.encode()).hexdigest()}"


def model_folder(participant_name: str) -> str:
    """The model ledger's folder relative to the snapshot."""
    return f"model-ledger/{participant_name}"


def resources_folder(participant_name: str) -> str:
    """The resources server's folder relative to the snapshot."""
    return f"resources/{participant_name}"


def participant_folder(component: str, participant_name: str) -> str:
    """The folder of one participant; `component` is one of COMPONENTS."""
    return {AGENT: agent_folder, MODEL: model_folder, RESOURCES: resources_folder}[component](participant_name)


def record_file_name(rollout: str, attempt_index: int) -> str:
    """The name of an agent's boundary record (tar member) and of a resources session file."""
    return f"{rollout}.a{attempt_index}.json"


def lineage_file_name(capture: str) -> str:
    """The name of a capture key's custody file and lineage tar member."""
    return f"{capture}.lineage.jsonl"
