"""What must hold after every command, whatever happened in it. A breach is recorded, never raised: the schedule goes on.

Watched all the time:

1. admission opens only when no participant that lives is held;
2. a coordinator holds nobody under a checkpoint id that a durable journal does not know, and releases nobody under one that the
   journal does not know at all, or that is not the one that holds him; it asks in the order of the contract, and alone;

after each command:

3. what was published stays, byte for byte; nothing is visible that no command said, or may have, published;
4. who is held is held by a transaction that the journal shows unfinished, and the exit status does not say otherwise;
5. 23 and 24 leave a transaction behind, 0 leaves none;

at the end:

6. every visible snapshot validates in full; 7. the history is that of an uninterrupted run; 8. no acknowledgement is lost or invented.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ckptctl.adapters.clock import SystemClock
from ckptctl.adapters.journal import FileJournal
from ckptctl.adapters.local_store import LocalStore
from ckptctl.domain.retention import TRASH_FOLDER
from ckptctl.errors import CkptctlError
from ckptctl.planning.recovery import Transaction, read_transaction
from ckptctl.sim.equivalence import differences
from ckptctl.sim.run_history import RunHistory, read_history
from ckptctl.workflows.find_unfinished import HOLDING
from tests.runs import judge_snapshot
from tests.simulation.cluster import RUN_DIR, Cluster, Machine
from tests.simulation.kernel import Process
from tests.simulation.network import Message

ORDER = (
    "admission/close", "model-admission/pause", "agent-checkpoint/prepare", "resources-checkpoint/prepare",
    "agent-checkpoint/commit", "model-checkpoint/commit", "resources-checkpoint/commit", "save",
    "restore", "model-checkpoint/restore", "agent-checkpoint/restore", "resources-checkpoint/restore",
    "agent-checkpoint/discard-restored-continuation", "staging/clear",
    "resources-checkpoint/resume", "model-admission/resume", "agent-checkpoint/resume", "admission/open",
)  # fmt: skip
"""In which order one process sends them under one id; each may be sent again and again before the next."""
DIED = -1
"""The status of a command whose process was killed."""
PENDING = 23
SAYS_HELD = (PENDING, 24)
ABORTED = 22
BUG = 1
_VALID: set[bytes] = set()
"""Digests of snapshots that validated in full in this process."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended."""

    command: str
    status: int
    told: str = ""
    hint: str = ""
    published: str | None = None
    """The path that it said is a published snapshot."""
    result: Any = None

    def __str__(self) -> str:
        return f"{self.command}: {'killed' if self.status == DIED else self.status} {self.told}".rstrip()


class Invariants:
    """Breaches found so far, and what must be known to find them."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.breaches: list[str] = []
        self.cluster: Cluster | None = None
        self._known_ids: set[str] = set()
        self._seen: dict[str, dict[str, bytes]] = {}
        """Content of every snapshot that was ever visible."""
        self._new_ones: list[str] = []
        self._promised: set[str] = set()
        self.slept: set[str] = set()
        """Names of coordinators that stood still past their lease: what they still send meets the fence."""
        self._at_work: dict[Process, None] = {}
        """Living coordinators that told a server to do something."""
        self._furthest: dict[tuple[str, str], int] = {}
        """How far in the order each process came under each id."""
        self.kept = machine.run.keep_latest_k
        """How many snapshots retention leaves."""
        machine.network.seen = self.watch_message

    def breach(self, text: str) -> None:
        """Record one."""
        self.breaches.append(text)
        self._machine.weather.note(f"BREACH {text}")

    # --- all the time --------------------------------------------------------------------------------------------------------

    def watch(self, cluster: Cluster) -> None:
        """Look at a cluster's controller from now on (1)."""
        self.cluster = cluster
        loop = cluster.controller.controller.loop
        opens = loop.open

        def watched(dispatches: Any = ()) -> int:
            held = {name: how for name, how in cluster.held().items() if name != "controller"}
            if held:
                self.breach(f"1: admission opens while {held} are held")
            return opens(dispatches)

        loop.open = watched

    def watch_message(self, message: Message) -> None:
        """A coordinator sends something (2)."""
        checkpoint_id = message.body.get("checkpoint_id")
        if checkpoint_id is None:
            return
        self._check_alone(message)
        releases = message.operation.endswith(("resume", "open"))
        if checkpoint_id not in self._known_ids:
            folder, disk = f"{self._machine.checkpoint_dir}/.ckptctl/journal", self._machine.kernel.disk
            files = disk.files(folder) if releases else disk.durable_files(folder)
            if not any(checkpoint_id.encode() in data for data in files.values()):
                self.breach(f"2: {message.operation} names {checkpoint_id}, which no journal knows")
            if not releases:
                self._known_ids.add(checkpoint_id)
        self._check_order(message, checkpoint_id)
        assert message.caller is not None
        if releases and self.cluster is not None and message.caller.name not in self.slept:
            fence = self.cluster.fences().get(message.server)
            if fence is not None and fence.active_checkpoint_id not in (None, checkpoint_id):
                holder = fence.active_checkpoint_id
                self.breach(f"2: {message.operation} of {message.server} under {checkpoint_id}, held by {holder}")

    def _check_alone(self, message: Message) -> None:
        assert message.caller is not None
        self._at_work = {process: None for process in self._at_work if not process.is_dead}
        others = {process.name for process in self._at_work if process is not message.caller}
        if others - self.slept and message.caller.name not in self.slept:
            self.breach(f"2: {message.operation} by a second coordinator while the first is at work")
        self._at_work[message.caller] = None

    def _check_order(self, message: Message, checkpoint_id: str) -> None:
        if message.operation not in ORDER or message.caller is None:
            return
        key = (message.caller.name, checkpoint_id)
        place, before = ORDER.index(message.operation), self._furthest.get(key, 0)
        if place < before:
            self.breach(f"2: {message.operation} after {ORDER[before]}")
        self._furthest[key] = max(place, before)

    # --- after each command --------------------------------------------------------------------------------------------------

    def visible(self) -> dict[str, dict[str, bytes]]:
        """Every published snapshot: path -> files."""
        disk, root = self._machine.kernel.disk, self._machine.checkpoint_dir
        found = {}
        for anchor in sorted(disk.require(root).names):
            folder = disk.find(f"{root}/{anchor}/rollout_snapshots")
            for name in sorted(folder.names) if folder is not None else ():
                if name.startswith("snapshot_"):
                    path = f"{anchor}/rollout_snapshots/{name}"
                    found[path] = disk.files(f"{root}/{path}")
        return found

    def look(self, *, most_new: int = 0) -> None:
        """3: compare what is visible with what was."""
        visible = self.visible()
        for path, files in self._seen.items():
            if path not in visible:
                if not self._may_be_gone(path, visible):
                    self.breach(f"3: {path} is gone")
            elif visible[path] != files:
                names = sorted(
                    name for name in files.keys() | visible[path].keys() if files.get(name) != visible[path].get(name)
                )
                self.breach(f"3: {path} was changed: {names}")
        new = [path for path in visible if path not in self._seen]
        if len(new) > most_new:
            self.breach(f"3: {len(new)} new snapshots after one attempt: {new}")
        for path in self._promised:
            if path not in visible and path not in self._seen and not self._may_be_gone(path, visible):
                self.breach(f"3: {path} was said to be published and is not there")
        self._new_ones = new
        self._seen.update({path: visible[path] for path in new})

    def _may_be_gone(self, path: str, visible: dict[str, dict[str, bytes]]) -> bool:
        """Whether retention may have taken it away."""
        anchor = path.partition("/")[0]
        newer = [other for other in visible if other.startswith(f"{anchor}/") and other > path]
        is_superseded = anchor == "bootstrap" and any(other.startswith("step_") for other in visible)
        return len(newer) >= self.kept or is_superseded

    def check(self, outcome: Outcome, *, was_unfinished: bool, had_disk_fault: bool, rivals: list[Outcome]) -> None:
        """4 and 5, and 3. What is held may be held by a rival too, and it may have begun after the command ended."""
        if outcome.status == BUG:
            self.breach(f"a bug: {outcome}")
        if outcome.published is not None:
            self._promised.add(outcome.published.removeprefix(f"{self._machine.checkpoint_dir}/"))
        self.look(most_new=1 + sum(map(_may_have_published, rivals)))
        held = self.cluster.held() if self.cluster is not None else {}
        left = self.unfinished()
        if held and left is None:
            self.breach(f"4: {outcome}; {held} are held and no journal says so")
        if held and left is not None and not was_unfinished and not any(map(_may_hold, (outcome, *rivals))):
            self.breach(f"4: {outcome}; {held} are held and the status does not say so")
        if outcome.status == ABORTED and outcome.command == "snapshot" and self._new_ones and not rivals:
            self.breach(f"3: {outcome}; and yet {self._new_ones} appeared")
        if outcome.status in SAYS_HELD and left is None and not rivals:
            self.breach(f"5: {outcome}; the journal has nothing left to finish")
        if outcome.status == 0 and left is not None and not had_disk_fault and not rivals:
            self.breach(f"5: {outcome}; {left.name} is unfinished")

    def unfinished(self) -> Transaction | None:
        """The newest transaction that the journals show unfinished; one that cannot be read counts as one."""
        journal = FileJournal(self._machine.checkpoint_dir, SystemClock())
        for name in reversed(journal.transactions()):
            if name.endswith(HOLDING):
                found = read_transaction(name, (item.record for item in journal.read(name)))
                if found.finish is None:
                    return found
        return None

    # --- at the end ----------------------------------------------------------------------------------------------------------

    def check_snapshots(self) -> None:
        """6. What was found valid once, byte for byte and beside the same anchor, is not looked at again for another seed."""
        root = self._machine.checkpoint_dir
        for path, files in self.visible().items():
            anchor = self._machine.kernel.disk.files(f"{root}/{path.partition('/')[0]}")
            beside = {name: data for name, data in anchor.items() if not name.startswith("rollout_snapshots/")}
            known = hashlib.sha256(repr((path, sorted(files.items()), sorted(beside.items()))).encode()).digest()
            if known in _VALID:
                continue
            try:
                report = judge_snapshot(LocalStore(root), f"{root}/{path}", "full")
            except CkptctlError as error:
                self.breach(f"6: {path}: {error.message}")
                continue
            if report.verdict != "valid":
                found = "; ".join(f"{item.rule} {item.message}" for item in report.findings[:3])
                self.breach(f"6: {path} is {report.verdict}: {found}")
            else:
                _VALID.add(known)

    def check_history(self, reference: RunHistory) -> None:
        """7."""
        for difference in differences(reference, read_history(RUN_DIR), "counter")[:5]:
            self.breach(f"7: {difference}")

    def check_acknowledgements(self) -> None:
        """8: at the end of a run nothing is owed, every result that the agent dropped is owned, and none waits to be dropped."""
        assert self.cluster is not None
        state, store = self.cluster.controller.controller.state, self.cluster.agent.service.store
        if state.ledger.outbox():
            self.breach(f"8: {len(state.ledger.outbox())} acknowledgements are still owed")
        sealed = {
            (line["rollout_id"], line["attempt_index"])
            for line in read_history(RUN_DIR).results
            if line["kind"] == "sibling"
        }
        for pair in store.acknowledged:
            if (pair.rollout_id, pair.attempt_index) not in sealed:
                self.breach(f"8: {pair} was acknowledged and its result is nowhere")
        for execution in store.in_state("completed"):
            owned = (execution.pair.rollout_id, execution.pair.attempt_index) in sealed
            if owned:
                self.breach(f"8: {execution.pair} is owned and was never acknowledged")

    def trash(self) -> Iterator[str]:
        """Names in our trash."""
        node = self._machine.kernel.disk.find(f"{self._machine.checkpoint_dir}/{TRASH_FOLDER}")
        return iter(sorted(node.names) if node is not None else ())


def _may_have_published(outcome: Outcome) -> bool:
    return outcome.told == "published" or outcome.status in (PENDING, DIED, 130, 143)


def _may_hold(outcome: Outcome) -> bool:
    return outcome.status in (*SAYS_HELD, DIED, 130, 143)
