"""`snapshot --every`: when rounds begin, which wishes are granted when, and what ends it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from ckptctl.domain.rounds import EveryRequest
from ckptctl.domain.traffic import Asked
from ckptctl.domain.transaction import SnapshotRequest, TransactionResult
from ckptctl.errors import (
    AnchorRefusedError,
    AttemptAbortedError,
    ConfigError,
    NothingThereError,
    StoppedError,
    UsageError,
)
from ckptctl.workflows import repeat
from ckptctl.workflows.repeat import Listener, Setting, Wishes, plan_rounds
from tests.fakes.fixed_clock import START_S, FixedClock
from tests.fakes.small_world import a_world
from tests.unit.planning.test_config_checks import GOOD, changed, decoded

TAKEN = TransactionResult(outcome="published")
ABORTED = AttemptAbortedError("aborted", hint=None)
EVERY = EveryRequest(every_s=10.0, jitter_s=0.0)


class OneFolder:
    """A reader that has the checkpoint directory of the good configuration, and nothing in it."""

    def kind_of(self, path):
        return "directory" if path == decoded(GOOD).checkpoint_dir else None

    def list_tree(self, path, max_depth):
        return ()


class Play:
    """A loop whose attempts come to what is listed; `during` says what is wished in the middle of an attempt, by its number."""

    def __init__(self, monkeypatch, outcomes, *, seconds=1.0, during=None, waiting=None, share=0.0) -> None:
        self.clock, self.wishes = FixedClock(), Wishes()
        self.told, self.began, self.requests, self.reloads, self.settings = [], [], [], [], []
        self._outcomes, self._seconds = list(outcomes), seconds
        self._during, self._waiting = during or {}, waiting or {}
        self._share = share
        self.given_up = False
        self.silent = ()
        self.next_setting = None
        monkeypatch.setattr(repeat, "take_snapshot", self._take)

    async def _take(self, world, config, request):
        self.began.append(self.clock.value_s - START_S)
        self.requests.append(request)
        self.settings.append(config)
        number = len(self.began)
        for wish in self._during.get(number, ()):
            self.wishes.ask(wish)
        try:
            for _ in range(30):  # the loop hears of wishes, and may give the attempt up
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.given_up = True
            raise StoppedError("aborted and released", hint=None) from None
        self.clock.value_s += self._seconds
        found = self._outcomes.pop(0) if self._outcomes else StoppedError("no more", hint=None)
        if isinstance(found, Exception):
            raise found
        return found

    def _round(self, told, plan) -> None:
        self.told.append(told)
        for wish in self._waiting.get(told.number, ()):
            self.wishes.ask(wish)

    async def _reload(self):
        found = self.next_setting
        if isinstance(found, Exception):
            raise found
        return Setting(self._world(), found)

    def _world(self):
        return replace(
            a_world(clock=self.clock, store=OneFolder(), under_way=lambda: self.silent), share=lambda: self._share
        )

    def run(self, every=EVERY, *, deadline_ts=None, config=None):
        """How it ended."""
        setting = Setting(self._world(), config or decoded(GOOD))
        works = repeat.take_snapshots(
            setting,
            SnapshotRequest(deadline_ts=deadline_ts),
            every,
            wishes=self.wishes,
            reload=self._reload,
            listener=Listener(self._round, self.reloads.append),
        )
        try:
            return asyncio.run(works)
        except Exception as error:
            return error

    @property
    def outcomes(self):
        return [type(item.outcome) for item in self.told]


def test_rounds_begin_at_fixed_distances(monkeypatch) -> None:
    """Every 10 s, whatever an attempt takes; what a slow one outlasts is left out and told, not caught up with."""
    quick, slow = Play(monkeypatch, [TAKEN] * 3), None
    quick.run()
    slow = Play(monkeypatch, [TAKEN] * 2, seconds=24.0)
    slow.run()

    assert [0.0, 10.0, 20.0, 30.0] == quick.began
    assert [0.0, 30.0, 60.0] == slow.began
    assert [2, 2] == [item.left_out for item in slow.told[:2]]
    assert START_S + 30.0 == slow.told[0].next_at_s


def test_jitter_puts_off_and_does_not_add_up(monkeypatch) -> None:
    """Each round but the first by its own part, from distances that stay where they are."""
    play = Play(monkeypatch, [TAKEN] * 3, share=0.5)
    play.run(EveryRequest(every_s=10.0, jitter_s=4.0))

    assert [0.0, 12.0, 22.0, 32.0] == play.began


def test_failures_are_told_and_tried_again(monkeypatch) -> None:
    """An undone attempt or a trainer between steps is waited out; a success begins the count anew."""
    play = Play(monkeypatch, [ABORTED, AnchorRefusedError("x", hint=None), TAKEN, ABORTED, ABORTED, TAKEN])
    end = play.run()

    assert [1, 2, 0, 1, 2, 0] == [item.failures_in_a_row for item in play.told[:6]]
    assert isinstance(end, StoppedError)


@pytest.mark.parametrize(
    ("outcomes", "most", "attempts"),
    [
        ([ABORTED] * 9, None, 3),
        ([ABORTED] * 9, 5, 5),
        ([ConfigError(path="c", location="x", problem="is wrong", hint=None)], None, 1),
    ],
)
def test_what_ends_it(monkeypatch, outcomes, most, attempts) -> None:
    """`max_consecutive_failures` in a row, or the option's number, or a failure that waiting does not heal; the last is told too."""
    play = Play(monkeypatch, outcomes)
    end = play.run(replace(EVERY, most_failures=most))

    assert (attempts, type(outcomes[0])) == (len(play.began), type(end))
    assert (attempts, None) == (len(play.told), play.told[-1].next_at_s)


def test_the_deadline_ends_it_quietly(monkeypatch) -> None:
    """No attempt is begun that could not end in time."""
    play = Play(monkeypatch, [TAKEN] * 9)

    assert None is play.run(deadline_ts=START_S + 25)
    assert [0.0, 10.0] == play.began[:2]
    assert len(play.began) <= 3


def test_one_now_is_taken_at_once_and_moves_nothing(monkeypatch) -> None:
    """While it waits; and right after the round that is under way."""
    waiting = Play(monkeypatch, [TAKEN] * 3, waiting={1: ["now"]})
    waiting.run()
    busy = Play(monkeypatch, [TAKEN] * 2, during={1: ["now"]})
    busy.run()

    assert [0.0, 1.0, 10.0, 20.0] == waiting.began
    assert [0.0, 1.0, 10.0] == busy.began


def test_what_is_announced_comes(monkeypatch) -> None:
    """One at once that is still at work when the regular one would begin has it left out; and jitter is drawn once for each."""
    play = Play(monkeypatch, [TAKEN] * 4, seconds=8.0, waiting={2: ["now"]}, during={1: ["now"]}, share=0.5)
    play.run(EveryRequest(every_s=10.0, jitter_s=4.0))

    assert [0.0, 8.0, 16.0, 32.0] == play.began[:4]
    assert [0, 1, 1] == [item.left_out for item in play.told[:3]]
    late = Play(monkeypatch, [TAKEN] * 3, waiting={1: ["now"]}, share=0.5)
    late.run(EveryRequest(every_s=10.0, jitter_s=4.0))
    assert [START_S + 12.0] * 2 == [item.next_at_s for item in late.told[:2]]
    assert 12.0 == late.began[2]


def test_the_end_is_asked_for_while_it_waits(monkeypatch) -> None:
    """A last one at once, bounded; with nothing to do without a bound for it none is taken."""
    play = Play(monkeypatch, [TAKEN] * 9, waiting={2: ["last"]})
    end = play.run()
    none = Play(monkeypatch, [TAKEN] * 9, waiting={2: ["last"]})

    assert (None, [0.0, 10.0, 11.0]) == (end, play.began)
    assert [None, None, START_S + 11.0 + 25.0] == [item.deadline_ts for item in play.requests]
    assert "--last-within" == play.requests[-1].deadline_option
    assert None is play.told[-1].next_at_s
    assert (None, [0.0, 10.0]) == (none.run(replace(EVERY, last_within_s=0.0)), none.began)


def test_the_round_under_way_is_the_last_one(monkeypatch) -> None:
    """It goes on to its end, and no other follows; its failure is that of the command."""
    play = Play(monkeypatch, [TAKEN] * 9, during={2: ["last"]})
    monkeypatch.setattr(play.clock, "sleep", forever_after(play.clock, 1))

    assert (None, 2, False) == (play.run(), len(play.began), play.given_up)
    failing = Play(monkeypatch, [TAKEN, ABORTED], during={2: ["last"]})
    monkeypatch.setattr(failing.clock, "sleep", forever_after(failing.clock, 1))
    assert failing.run() is ABORTED


def test_it_has_only_so_long(monkeypatch) -> None:
    """When the bound passes it is given up: aborted and released, which the command ends with."""
    play = Play(monkeypatch, [TAKEN] * 9, during={2: ["last"]})  # this clock's sleep is over at once
    play.silent = (Asked("counter", "http://h", "capabilities"),)
    end = play.run()

    assert (True, StoppedError) == (play.given_up, type(end))
    assert end.message.startswith("aborted and released; the last round was not done within 25 s (`--last-within`)")
    assert end.message.endswith("waiting for `counter` (capabilities at http://h)")
    assert "`--last-within`" in end.hint


def test_a_second_wish_for_the_end_gives_up(monkeypatch) -> None:
    """Whoever asks twice does not want to wait."""
    play = Play(monkeypatch, [TAKEN] * 9, during={1: ["last", "last"]})
    monkeypatch.setattr(play.clock, "sleep", forever_after(play.clock, 0))
    end = play.run()

    assert (True, StoppedError) == (play.given_up, type(end))


def test_a_new_configuration_is_used_from_the_next_round_on(monkeypatch) -> None:
    """Its interval counts from the round before, and its budget of failures holds."""
    later = decoded(GOOD)
    section = later.sections.rollout_checkpointing.model_copy(
        update={"snapshot_attempt_interval_s": 50.0, "max_consecutive_failures": 1}
    )
    later = replace(later, sections=later.sections.model_copy(update={"rollout_checkpointing": section}))
    play = Play(monkeypatch, [TAKEN, TAKEN, ABORTED], waiting={1: ["reload"]})
    play.next_setting = later
    end = play.run(EveryRequest(jitter_s=0.0))

    assert ([None], ABORTED) == (play.reloads, end)
    assert [0.0, 50.0, 100.0] == play.began
    assert [False, True, True] == [item is later for item in play.settings]


@pytest.mark.parametrize("kind", ["unreadable", "unsound", "nowhere"])
def test_a_bad_new_configuration_is_refused(monkeypatch, kind) -> None:
    """It is told of, and the one before goes on as if nothing had been asked."""
    good = decoded(GOOD)
    section = good.sections.checkpointing.model_copy(update={"save_data_plane": False})
    play = Play(monkeypatch, [TAKEN] * 2, waiting={1: ["reload"]})
    play.next_setting = {
        "unreadable": ConfigError(path="c", location="x", problem="is wrong", hint=None),
        "unsound": replace(good, sections=good.sections.model_copy(update={"checkpointing": section})),
        "nowhere": decoded(changed(checkpointing__checkpoint_dir="gone")),
    }[kind]
    play.run(config=good)

    assert [NothingThereError if kind == "nowhere" else ConfigError] == [type(item) for item in play.reloads]
    assert [0.0, 10.0, 20.0] == play.began
    assert all(item is good for item in play.settings)


@pytest.mark.parametrize(
    "every", [EveryRequest(every_s=0.0), EveryRequest(every_s=10.0, jitter_s=10.0), EveryRequest(every_s=1e-4)]
)
def test_a_plan_that_makes_no_sense_is_refused(every) -> None:
    """No interval, or a jitter that is as long."""
    with pytest.raises(UsageError, match="interval"):
        plan_rounds(decoded(GOOD), every)


def forever_after(clock, count):
    """A sleep that is over at once so many times, and then never."""
    done = clock.sleep

    async def sleep(seconds):
        nonlocal count
        if count == 0:
            await asyncio.Event().wait()
        count -= 1
        await done(seconds)

    return sleep
