"""Bugs to plant in the product, one at a time: the simulation must find each of them. They show what its eyes are worth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ckptctl.adapters import durable
from ckptctl.adapters.local_store import LocalStore
from ckptctl.planning import snapshot as steps
from ckptctl.workflows import recovery, snapshot
from ckptctl.workflows.release import Release
from tests.simulation import sandbox, system
from tests.simulation.sandbox import SimulatedLock

Plant = Callable[[Any], None]
"""Gets `replace(owner, name, value)`."""


def _skip_sync(replace: Any) -> None:
    """Staged files are renamed into place without ever having been synced."""
    synced = system.SimulatedOs.fsync

    def fsync(self: Any, descriptor: int) -> None:
        if "/tmp_snapshot_" not in self._file(descriptor).path:
            synced(self, descriptor)

    replace(system.SimulatedOs, "fsync", fsync)


def _resume_agents_first(replace: Any) -> None:
    """A release in the order of the prepare."""
    release = steps.release_steps

    def turned(*stages: Any, requires: Any) -> Any:
        *resumes, opened = release(*stages, requires=requires)
        return (*reversed(resumes), opened)

    replace(steps, "release_steps", turned)


def _forget_resources(replace: Any) -> None:
    """An abort that leaves the resources servers paused."""
    abort = steps.plan_abort

    def forgetful(*arguments: Any) -> Any:
        plan = abort(*arguments)
        return plan.model_copy(
            update={"steps": tuple(step for step in plan.steps if step.name != steps.RESUME_RESOURCES)}
        )

    replace(steps, "plan_abort", forgetful)


def _new_id_on_retry(replace: Any) -> None:
    """Recovery releases under an id of its own."""
    release = recovery._Recovery._release

    def renamed(self: Any, outcome: str) -> Any:
        found = release(self, outcome)
        found.checkpoint_id += "-again"
        return found

    replace(recovery._Recovery, "_release", renamed)


def _open_anyway(replace: Any) -> None:
    """Admission opens although somebody did not confirm."""
    run = Release.run

    async def careless(self: Any, plan: Any, recorder: Any) -> None:
        *resumes, opened = [step for step in plan.steps if step.name != steps.REMOVE_STAGED]
        await run(self, plan.model_copy(update={"steps": tuple(resumes)}), recorder)
        kept, self.failures = self.failures, {}
        await run(self, plan.model_copy(update={"steps": (opened,)}), recorder)
        self.failures |= kept

    replace(Release, "run", careless)


def _forget_publication(replace: Any) -> None:
    """What fails after the rename is taken for a failed attempt."""
    replace(snapshot._Transaction, "_note_published", lambda _: None)


def _late_journal(replace: Any) -> None:
    """The id is written, but not made durable, before servers hear of it."""
    create = durable.create_file

    def unsynced(path: str, data: bytes, *, mode: int | None = None) -> bool:
        if "/journal/" not in path:
            return create(path, data, mode=mode)
        descriptor = sandbox.OS.open(path, sandbox.OS.O_WRONLY | sandbox.OS.O_CREAT | sandbox.OS.O_EXCL, 0o600)
        sandbox.OS.write(descriptor, data)
        sandbox.OS.close(descriptor)
        return True

    replace(durable, "create_file", unsynced)


def _lock_nothing(replace: Any) -> None:
    """Two coordinators may work at once."""
    replace(SimulatedLock, "acquire", lambda self, *, break_lock=False: None)
    replace(SimulatedLock, "is_owner", lambda self: True)
    replace(SimulatedLock, "release", lambda self: None)


def _delete_in_place(replace: Any) -> None:
    """Deleting begins before the name is hidden."""
    rename = LocalStore.rename

    def direct(self: Any, source: str, target: str) -> None:
        if "/.ckptctl/trash/" in target:
            durable.remove_tree(source)
            durable.make_directory(target)
        else:
            rename(self, source, target)

    replace(LocalStore, "rename", direct)


BUGS: dict[str, tuple[Plant, tuple[str, ...]]] = {
    "skip-sync-before-rename": (_skip_sync, ("snapshot", "publish")),
    "resume-agents-first": (_resume_agents_first, ("snapshot",)),
    "forget-a-release": (_forget_resources, ("snapshot", "publish")),
    "new-id-on-retry": (_new_id_on_retry, ("publish",)),
    "open-before-all-confirmed": (_open_anyway, ("snapshot", "publish")),
    "forget-that-it-is-published": (_forget_publication, ("snapshot",)),
    "journal-not-durable": (_late_journal, ("snapshot", "restore")),
    "lock-nothing": (_lock_nothing, ("snapshot", "publish")),
    "delete-in-place": (_delete_in_place, ("gc",)),
}
"""Each with the kinds of stories in which it can show."""


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The product with one bug."""
    replaced: list[tuple[Any, str, Any]] = []

    def replace(owner: Any, attribute: str, value: Any) -> None:
        replaced.append((owner, attribute, getattr(owner, attribute)))
        setattr(owner, attribute, value)

    BUGS[name][0](replace)
    try:
        yield
    finally:
        for owner, attribute, value in reversed(replaced):
            setattr(owner, attribute, value)
