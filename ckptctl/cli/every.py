"""`snapshot --every`: signals become wishes, a new configuration new connections, and each round one line.

SIGUSR1: one now. SIGHUP: read the configuration again. SIGTERM and SIGINT: a last one, then the end; a second one gives up the
round that is under way, and everybody is released before the process ends.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ckptctl.cli.options import Settings

if TYPE_CHECKING:
    from ckptctl.domain.config import RunConfig
    from ckptctl.domain.rounds import EveryRequest, Round, RoundPlan
    from ckptctl.domain.transaction import SnapshotRequest
    from ckptctl.errors import CkptctlError
    from ckptctl.workflows.repeat import Setting, Wish, Wishes

EveryOption = Annotated[
    str | None,
    typer.Option(
        "--every",
        metavar="DURATION",
        help="Keep taking snapshots at this interval (120s); `config`: at `snapshot_attempt_interval_s`.",
        show_default=False,
    ),
]
JitterOption = Annotated[
    str | None,
    typer.Option(
        "--jitter",
        metavar="DURATION",
        help="With --every: put each round off by up to this. Default: a tenth of the interval.",
        show_default=False,
    ),
]
MostFailuresOption = Annotated[
    int | None,
    typer.Option(
        "--max-failures",
        metavar="N",
        min=1,
        help="With --every: end after N failures in a row. Default: `max_consecutive_failures`, or 3.",
        show_default=False,
    ),
]
LastWithinOption = Annotated[
    str | None,
    typer.Option(
        "--last-within",
        metavar="DURATION",
        help="With --every: bound of the last snapshot, after SIGTERM or SIGINT. Default: 25s; 0s: none.",
        show_default=False,
    ),
]

WISHES: dict[int, Wish] = {
    signal.SIGUSR1: "now",
    signal.SIGHUP: "reload",
    signal.SIGTERM: "last",
    signal.SIGINT: "last",
}


def every_request(
    every: str | None, jitter: str | None, most_failures: int | None, last_within: str | None
) -> EveryRequest | None:
    """What the options come to; None without `--every`. Raises UsageError."""
    from ckptctl.cli.durations import parse_duration_s
    from ckptctl.domain.rounds import LAST_WITHIN_S, EveryRequest
    from ckptctl.errors import UsageError

    if every is None:
        if (jitter, most_failures, last_within) != (None, None, None):
            raise UsageError("`--jitter`, `--max-failures` and `--last-within` belong to `--every`", hint=None)
        return None
    given_s = None if every == "config" else parse_duration_s(every, "--every")
    if given_s == 0:
        raise UsageError("`--every` needs an interval above zero", hint="for example `--every 120s`")
    return EveryRequest(
        every_s=given_s,
        jitter_s=None if jitter is None else parse_duration_s(jitter, "--jitter"),
        most_failures=most_failures,
        last_within_s=LAST_WITHIN_S if last_within is None else parse_duration_s(last_within, "--last-within"),
    )


def ignore_until_heard(ctx: Any) -> None:
    """While the command still starts these two mean nothing: a round begins at once, with the configuration as it is."""
    for number in (signal.SIGUSR1, signal.SIGHUP):
        ctx.call_on_close(partial(signal.signal, number, signal.signal(number, signal.SIG_IGN)))


def keep_taking(settings: Settings, request: SnapshotRequest, every: EveryRequest) -> None:
    """Run until the end is asked for. Raises CkptctlError as `workflows.repeat.take_snapshots`."""
    import asyncio

    from ckptctl.cli.offline import load

    asyncio.run(_Loop(settings, request, every).run(load(settings)))


class _Loop:
    """The composition of the loop, and what is told of it."""

    def __init__(self, settings: Settings, request: SnapshotRequest, every: EveryRequest) -> None:
        self._settings = settings
        self._request = request
        self._every = every
        self._ended: dict[str, int] = {}
        self._stopped_by: int | None = None
        self._connections = AsyncExitStack()

    async def run(self, config: RunConfig) -> None:
        """Open, loop, close."""
        from ckptctl.errors import InterruptedStoppedError, StoppedError
        from ckptctl.workflows.repeat import Listener, Wishes, plan_rounds, take_snapshots

        plan_rounds(config, self._every)
        wishes = Wishes()
        async with self._connections:
            setting = await self._open(config)
            with self._heard(wishes):
                try:
                    await take_snapshots(
                        setting,
                        self._request,
                        self._every,
                        wishes=wishes,
                        reload=self._reload,
                        listener=Listener(self._tell, self._tell_reloaded),
                    )
                except StoppedError as error:
                    kind = InterruptedStoppedError if self._stopped_by == signal.SIGINT else StoppedError
                    raise kind(error.message, hint=error.hint) from error

    async def _open(self, config: RunConfig) -> Setting:
        from ckptctl.cli.wiring import open_world
        from ckptctl.workflows.repeat import Setting

        return Setting(await self._connections.enter_async_context(open_world(self._settings, config)), config)

    async def _reload(self) -> Setting:
        """Connections of the old configuration stay open to the end: there is no round that uses them."""
        from ckptctl.cli.offline import load

        return await self._open(load(self._settings))

    @contextmanager
    def _heard(self, wishes: Wishes) -> Iterator[None]:
        """Signals become wishes while the loop runs."""
        import asyncio

        loop = asyncio.get_running_loop()
        before = {number: signal.getsignal(number) for number in WISHES}
        for number, wish in WISHES.items():
            loop.add_signal_handler(number, self._hear, wishes, number, wish)
        try:
            yield
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)

    def _hear(self, wishes: Wishes, number: int, wish: Wish) -> None:
        from ckptctl.cli.answer import note

        wishes.ask(wish)
        name = signal.Signals(number).name
        if wish == "last":
            self._stopped_by = self._stopped_by or number
            again = "end" in wishes.asked
            what = "giving up, everybody is released" if again else "a last snapshot, then the end; again: no more"
            note(self._settings, f"{name}: {what}")
        elif wish == "now":
            note(self._settings, f"{name}: a snapshot now")

    def _tell(self, told: Round, plan: RoundPlan) -> None:
        """One line, the whole answer where more was asked for, and the metrics."""
        from ckptctl.cli.answer import emit, unsaid
        from ckptctl.cli.boundary import report_error
        from ckptctl.errors import CkptctlError
        from ckptctl.render.console import flow
        from ckptctl.render.machine import to_json_line
        from ckptctl.render.round_text import round_line
        from ckptctl.render.transaction_text import transaction_text

        settings, outcome = self._settings, told.outcome
        self._note(told, plan)
        if settings.format == "json":
            if not isinstance(outcome, CkptctlError):
                emit(settings, to_json_line(outcome))
        else:
            more = (
                ""
                if isinstance(outcome, CkptctlError) or not settings.verbose
                else transaction_text(unsaid(settings, outcome), verbose=1)
            )
            emit(settings, flow(round_line(told, plan)) + more)
        if isinstance(outcome, CkptctlError) and told.next_at_s is not None:
            named = settings.config if settings.is_config_named else None
            report_error(outcome, as_json=settings.format == "json", config=named)

    def _note(self, told: Round, plan: RoundPlan) -> None:
        from ckptctl.cli.metrics import write_metrics
        from ckptctl.domain.metrics import RoundFacts
        from ckptctl.errors import CkptctlError

        notes, outcome = self._settings.notes, told.outcome
        kind = "failed" if isinstance(outcome, CkptctlError) else outcome.outcome
        self._ended[kind] = self._ended.get(kind, 0) + 1
        notes.rounds = RoundFacts(dict(self._ended), told.failures_in_a_row, plan.most_failures, plan.every_s)
        notes.error = outcome if isinstance(outcome, CkptctlError) else None
        notes.outcome, notes.verdict, notes.seconds = "", None, told.seconds
        if not isinstance(outcome, CkptctlError):
            notes.transaction(outcome, self._request.level)
        if told.next_at_s is not None:
            status = int(outcome.exit_code) if isinstance(outcome, CkptctlError) else 0
            write_metrics(notes, status, is_going_on=True)

    def _tell_reloaded(self, problem: CkptctlError | None) -> None:
        from ckptctl.cli.answer import note
        from ckptctl.cli.boundary import report_error

        if problem is None:
            note(self._settings, "SIGHUP: the configuration was read again")
            return
        report_error(problem, as_json=self._settings.format == "json")
        note(self._settings, "SIGHUP: the new configuration is refused, the one before stays in use")
