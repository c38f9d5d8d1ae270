"""One hook's verdict: the facts that are recorded, and the words for exit statuses of ckptctl."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WORDS = {
    0: "valid",
    3: "nothing-there",
    10: "warnings",
    11: "not-checked",
    12: "incompatible",
    13: "invalid",
    32: "storage-failure",
}
"""Of the exit statuses that offline commands end with; every other one is `failed`."""
HUNG = "hung"
REFUSED = "refused"
FAILED = "failed"


class Verdict:
    """What one run of a hook found. Everything that came from a user is text, and is escaped where it is written."""

    __slots__ = ("directory", "exit_code", "found_by", "newest", "reason", "seconds", "unfinished", "word")

    def __init__(self, word: str, reason: str = "") -> None:
        self.word = word
        self.reason = reason
        self.exit_code: int | None = None
        self.directory = ""
        self.found_by = ""
        self.newest = ""
        self.unfinished: int | None = None
        self.seconds = 0.0


def of_status(status: int | None, deadline_s: float) -> Verdict:
    """The verdict that an exit status of ckptctl means; None is one that did not end in time."""
    if status is None:
        return Verdict(HUNG, f"no answer within {deadline_s:g} s: a file system may hang, or there is too much to read")
    if status < 0:
        return Verdict(FAILED, f"ended by signal {-status}")
    if status == 127:
        return Verdict(FAILED, "the job's user cannot start this Python: install ckptctl where everybody may read it")
    found = Verdict(WORDS.get(status, FAILED), "" if status in WORDS else f"ckptctl ended with {status}")
    found.exit_code = status
    return found


def take_facts(found: Verdict, data: bytes) -> None:
    """What the JSON of `inspect`, of `restore --select` or of an error says besides. The user could have changed it: data."""
    import json  # noqa: PLC0415 - a fifth of a start, and only jobs that have snapshots need it

    try:
        text = data.decode("utf-8", "replace")
        document, _ = json.JSONDecoder().raw_decode(text, text.index("{"))
        _take(found, document)
    except (ValueError, TypeError, LookupError, RecursionError, AttributeError):
        return


def _take(found: Verdict, document: dict[str, Any]) -> None:
    if "message" in document:
        found.reason = str(document["message"])
    elif "selected_path" in document:
        found.newest = str(document["selected_path"] or "")
        rejected = document["rejected"]
        if rejected:
            found.reason = f"{len(rejected)} passed over, the first: {rejected[0]['snapshot']}: {rejected[0]['reason']}"
    else:
        found.unfinished = len(document["unfinished"])
        snapshots = [item for anchor in document["anchors"] for item in anchor["snapshots"]]
        good = [str(item["path"]) for item in snapshots if item["verdict"] == "valid"]
        bad = [str(item["path"]) for item in snapshots if item["verdict"] != "valid"]
        found.newest = good[0] if good else ""
        found.reason = f"not valid: {', '.join(bad[:4])}" if bad else ""
