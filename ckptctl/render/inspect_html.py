"""`inspect --html`: one page about a snapshot, an anchor or a checkpoint directory. What the frame promises: `html_frame`."""

from __future__ import annotations

from datetime import UTC, datetime

from ckptctl.domain.agreement import DirectoryPage, SnapshotPage
from ckptctl.domain.amounts import duration, plural, size
from ckptctl.domain.inspection import AnchorView, DirectoryInspection, SnapshotInspection, SnapshotView
from ckptctl.render.html_frame import bar, facts, page, prose, section, t, table, verdict
from ckptctl.render.html_parts import (
    findings_section,
    matrix_section,
    rollouts_section,
    sizes_section,
    timings_section,
)
from ckptctl.render.inspect_snapshot_text import COMPONENTS
from ckptctl.render.inspect_text import lock_words
from ckptctl.render.report_words import meaning_of, verdict_words

ROLLOUTS_SHOWN = 200


def html_page(found: SnapshotPage | DirectoryPage) -> str:
    """The whole page."""
    footer = f"made by ckptctl {found.tool_version} on {_moment(found.made_at)}; a page shows one moment and checks nothing again"
    if isinstance(found, SnapshotPage):
        return page(f"snapshot {found.inspection.path}", _snapshot(found), footer=footer)
    what = "anchor" if found.inspection.kind == "anchor" else "checkpoint directory"
    return page(f"{what} {found.inspection.path}", _directory(found, what), footer=footer)


def _snapshot(found: SnapshotPage) -> list[str]:
    result = found.inspection
    meaning = meaning_of(result.verdict, result.level, result.kind)
    counters = result.counters
    written = None if result.written_at is None else _moment(result.written_at)
    age = "" if result.age_s is None else f", {duration(result.age_s)} before this page"
    return [
        f'<h1>Snapshot <span class="mono">{t(result.path)}</span></h1>',
        f"<p>{verdict(result.verdict)} at level {t(result.level)}: {t(meaning)}</p>",
        facts(
            ("checkpoint id", result.checkpoint_id),
            ("written", None if written is None else written + age),
            ("schema", result.schema_found),
            ("size", f"{size(result.coverage.bytes_total)} in {plural(result.coverage.files_total, 'file')}"),
            ("train step", None if counters is None else counters.base_train_step),
            ("trainer version", None if counters is None else counters.trainer_version),
            ("epoch", None if counters is None else counters.current_epoch),
            ("sampler at", None if counters is None else counters.sampler_dispatch_index),
            ("topology", None if counters is None else counters.gym_topology_fingerprint),
            ("acknowledgements owed", result.acknowledgements),
        ),
        findings_section(result.findings, result.unread),
        matrix_section(found.cells),
        timings_section(found.timings),
        rollouts_section(found.rollouts),
        _all_rollouts(result),
        _participants(result),
        _finished(result),
        sizes_section(result.parts),
    ]


def _all_rollouts(result: SnapshotInspection) -> str:
    if not result.rollouts:
        return ""
    rows = [
        (
            f'<span class="mono">{t(item.rollout_id)}</span>',
            str(item.attempt_index),
            t(item.status or "not in the ledger"),
            t(item.boundary_kind or "none"),
            "-" if item.turn_index is None else str(item.turn_index),
            "-" if item.staged_rows is None else f"{item.staged_rows:,}",
            t(", ".join(f"{server} {revision}" for server, revision in (item.revisions or {}).items()) or "-"),
        )
        for item in result.rollouts[:ROLLOUTS_SHOWN]
    ]
    heads = (
        ("rollout", "name"), ("attempt", "num"), ("status", "name"), ("boundary", "name"), ("turn", "num"), ("rows", "num"),
        ("revisions", "text"),
    )  # fmt: skip
    hidden = len(result.rollouts) - len(rows)
    more = f"; {hidden:,} more in `ckptctl inspect --format json`" if hidden > 0 else ""
    return section("All unfinished rollouts", table(f"{plural(len(result.rollouts), 'rollout')}{more}", heads, rows))


def _participants(result: SnapshotInspection) -> str:
    if not result.participants:
        return ""
    rows = [
        (
            t(item.server_name),
            t(COMPONENTS.get(item.component, item.component)),
            t(size(item.size_bytes)),
            t(", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in item.counts.items())),
        )
        for item in result.participants
    ]
    heads = (("server", "name"), ("component", "name"), ("size", "num"), ("saved", "text"))
    return section("Participants", table(plural(len(rows), "participant"), heads, rows))


def _finished(result: SnapshotInspection) -> str:
    if not result.replay:
        return ""
    rows = [
        (
            f'<span class="mono">{t(item.group_id)}</span>',
            f"{item.rows:,}",
            f"{item.start_weight} to {item.end_weight}",
            "-" if item.target_step is None else str(item.target_step),
        )
        for item in result.replay[:ROLLOUTS_SHOWN]
    ]
    heads = (("group", "name"), ("rows", "num"), ("weights", "num"), ("target step", "num"))
    return section("Finished groups", table(plural(len(result.replay), "group"), heads, rows))


def _directory(found: DirectoryPage, what: str) -> list[str]:
    result = found.inspection
    words = verdict_words(result.verdict, result.level)
    return [
        f'<h1>{t(what.capitalize())} <span class="mono">{t(result.path)}</span></h1>',
        f"<p>{verdict(result.verdict, words)} at level {t(result.level)}, the worst of what is shown</p>",
        _control(result),
        *(_anchor(anchor, result) for anchor in result.anchors),
        _rest(result),
        timings_section(found.timings),
        rollouts_section(found.rollouts),
    ]


def _control(result: DirectoryInspection) -> str:
    pieces = [facts(("lock", lock_words(result)))]
    for item in result.unfinished:
        told = (
            f"unfinished: {item.name} under {item.checkpoint_id or 'no id yet'}, at step {item.last_step or 'none'}; "
        )
        pieces.append(
            f'<p class="warn"><span class="sign">!</span> {t(told)}<code>{t(item.finished_by)}</code> finishes it</p>'
        )
    pieces += [f'<p class="warn"><span class="sign">!</span> {prose(text)}</p>' for text in result.warnings]
    return "".join(pieces)


def _anchor(anchor: AnchorView, result: DirectoryInspection) -> str:
    version = "" if anchor.trainer_version is None else f", trainer version {anchor.trainer_version}"
    durable = "" if anchor.is_durable else ", not durable"
    head = f"<p>{verdict(anchor.verdict, verdict_words(anchor.verdict, result.level))}{t(version + durable)}</p>"
    problems = [f'<p class="warn"><span class="sign">!</span> {prose(text)}</p>' for text in anchor.problems]
    if not anchor.snapshots:
        said = f"its snapshots are not known: {anchor.unlisted}" if anchor.unlisted else "no snapshot"
        return section(anchor.name, head, *problems, f'<p class="quiet">{t(said)}</p>')
    most = max(item.size_bytes for item in anchor.snapshots) or 1
    rows = [_snapshot_row(item, result, most) for item in anchor.snapshots]
    heads = (
        ("snapshot", "name"), ("verdict", "name"), ("age", "num"), ("", "bar"), ("size", "num"), ("groups", "num"),
        ("continuations", "num"), ("sessions", "num"),
    )  # fmt: skip
    caption = f"{plural(len(rows), 'snapshot')} of {anchor.name}, newest first"
    drawn = table(caption, heads, rows, is_full=True)
    return section(anchor.name, head, *problems, drawn, *map(_notes, anchor.snapshots))


def _snapshot_row(item: SnapshotView, result: DirectoryInspection, most: int) -> tuple[str, ...]:
    counts = item.counts
    return (
        f'<span class="mono">{t(item.name)}</span>',
        verdict(item.verdict, verdict_words(item.verdict, result.level)),
        "?" if item.age_s is None else t(duration(item.age_s)),
        bar(("own", 0.0, item.size_bytes / most), label=size(item.size_bytes)),
        t(size(item.size_bytes)),
        *("-" if count is None else f"{count:,}" for count in (counts.groups, counts.continuations, counts.sessions)),
    )


def _notes(item: SnapshotView) -> str:
    """What there is to say of one snapshot in words; it would make the table too wide."""
    told = [f"is {item.checkpoint_id}"] if item.checkpoint_id else []
    told += [f"is pinned: {item.pinned}"] if item.pinned is not None else []
    told += [f"is in use by {item.used_by}"] if item.used_by else []
    told += [f"! {text}" for text in item.problems]
    style = "quiet" if item.verdict == "valid" else "warn"
    return "".join(f'<p class="{style}"><span class="mono">{t(item.name)}</span> {prose(text)}</p>' for text in told)


def _rest(result: DirectoryInspection) -> str:
    rows = [
        (
            f'<span class="mono">{t(item.path)}</span>',
            "-" if item.size_bytes is None else t(size(item.size_bytes)),
            t(item.what),
        )
        for item in result.leftovers
    ]
    rows += [
        (
            f'<span class="mono">{t(item.entry)}</span>',
            "-" if item.size_bytes is None else t(size(item.size_bytes)),
            f"in the trash, {t(item.state)}",
        )
        for item in result.trash
    ]
    if not rows:
        return ""
    heads = (("path", "name"), ("size", "num"), ("what it is", "text"))
    return section("Leftovers and trash", table(plural(len(rows), "entry", "entries"), heads, rows))


def _moment(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return "a time that no calendar has"
