"""A world that dies: from one operation on nothing that the process does reaches anything, as after `kill -9`."""

from __future__ import annotations

import inspect
from dataclasses import replace

from ckptctl.workflows.world import World


class DeadError(BaseException):
    """The process is gone. Not an Exception, so that no handler of ours takes it for an error."""


class Life:
    """Counts operations and ends at one of them: before it is done, or after it with its answer lost."""

    def __init__(
        self,
        *,
        dies_at: int | None = None,
        after: bool = False,
        before_step: str | None = None,
        outcome_of: str | None = None,
    ):
        self.dies_at = dies_at
        self.after = after
        self.before_step = before_step
        self.outcome_of = outcome_of
        self.is_over = False
        self.operations: list[str] = []

    def observe(self, step: str) -> None:
        if step == self.before_step:
            self.is_over = True
            raise DeadError

    def enter(self, name: str, arguments: tuple) -> bool:
        """Count one operation. Returns whether the process dies right after it."""
        if self.is_over:
            raise DeadError
        self.operations.append(name)
        if name == "writer.append":
            record = arguments[0]
            if record["event"] == "outcome" and record["step"] == self.outcome_of:
                self.is_over = True
                raise DeadError
        if len(self.operations) - 1 == self.dies_at:
            self.is_over = True
            if not self.after:
                raise DeadError
            return True
        return False


class Mortal:
    """A port through which a mortal process acts."""

    def __init__(self, life: Life, name: str, target: object) -> None:
        self._life, self._name, self._target = life, name, target

    def __getattr__(self, method: str):
        found = getattr(self._target, method)
        label = f"{self._name}.{method}"
        if inspect.iscoroutinefunction(found):

            async def call(*args, **kwargs):
                dies = self._life.enter(label, args)
                answer = await found(*args, **kwargs)
                if dies or self._life.is_over:
                    raise DeadError
                return answer

            return call

        def act(*args, **kwargs):
            if self._name == "lock" and method == "release" and self._life.is_over:
                return None  # the dead give nothing back
            dies = self._life.enter(label, args)
            answer = found(*args, **kwargs)
            if dies:
                raise DeadError
            return Mortal(self._life, "writer", answer) if method in ("begin", "resume") else answer

        return act


def mortal(world: World, life: Life) -> World:
    """The same world for a process that will die."""
    names = ("store", "lock", "journal", "participants", "controller")
    return replace(world, observer=life.observe, **{name: Mortal(life, name, getattr(world, name)) for name in names})
