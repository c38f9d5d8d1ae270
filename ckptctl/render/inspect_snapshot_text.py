"""One snapshot, or a data plane alone, in depth, for people. Long lists are cut, which is said; JSON has them whole."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from itertools import groupby

from rich.console import Console
from rich.text import Text

from ckptctl.domain.amounts import duration, plural, size
from ckptctl.domain.finding import Finding
from ckptctl.domain.inspection import (
    DataPlaneInspection,
    DataPlaneView,
    PartSize,
    RolloutView,
    SnapshotInspection,
)
from ckptctl.domain.safe_text import safe
from ckptctl.render.console import draw_table, open_table, say
from ckptctl.render.report_words import SEVERITY_STYLE, VERDICT_STYLE, group_findings, meaning_of, told_at

FINDINGS_SHOWN = 5
GROUPS_SHOWN = 20
ROWS_SHOWN = 20
COMPONENTS = {
    "responses_api_agents": "agent",
    "responses_api_models": "policy model",
    "resources_servers": "resources",
}


def draw_snapshot_inspection(console: Console, result: SnapshotInspection, verbose: int) -> None:
    """Verdict first, then what it holds, from the outside to the inside."""
    _draw_head(console, "snapshot", result)
    facts = [f"schema {result.schema_found}" if result.schema_found is not None else "schema unknown"]
    if result.age_s is not None:
        facts.append(f"written {duration(result.age_s)} ago")
    facts.append(size(result.coverage.bytes_total))
    facts.append(plural(result.coverage.files_total, "file"))
    say(console, ", ".join(facts))
    if result.checkpoint_id:
        say(console, f"checkpoint id {safe(result.checkpoint_id)}")
    _draw_counters(console, result)
    _draw_findings(console, result.path, result.findings, result.unread)
    _draw_participants(console, result)
    _draw_groups(console, result)
    _draw_rollouts(console, result, verbose)
    _draw_replay(console, result, verbose)
    _draw_data_plane(console, result.data_plane)
    _draw_parts(console, result.parts)


def draw_data_plane_inspection(console: Console, result: DataPlaneInspection) -> None:
    """A data plane alone."""
    _draw_head(console, "data plane", result)
    _draw_findings(console, result.path, result.findings, result.unread)
    _draw_data_plane(console, result.data_plane)
    _draw_parts(console, result.parts)


def _draw_head(console: Console, what: str, result: SnapshotInspection | DataPlaneInspection) -> None:
    head = Text(f"{what} {safe(result.path)}: ")
    head.append(result.verdict, style=VERDICT_STYLE[result.verdict])
    head.append(f" at level {result.level} ({meaning_of(result.verdict, result.level, result.kind)})")
    say(console, head, 0)


def _draw_counters(console: Console, result: SnapshotInspection) -> None:
    found = result.counters
    if found is None:
        return
    told = (
        f"step {found.base_train_step}, trainer version {found.trainer_version}, epoch {found.current_epoch}, "
        f"sampler at {found.sampler_dispatch_index}, mutation {found.mutation_version}"
    )
    if found.rolled_back_train_group_count:
        told += f", {plural(found.rolled_back_train_group_count, 'group')} rolled back"
    say(console, told)
    for name, digest in (("bootstrap", found.bootstrap_fingerprint), ("topology", found.gym_topology_fingerprint)):
        if digest is not None:
            say(console, f"{name:<9} {digest}", style="dim")


def _draw_findings(console: Console, path: str, findings: tuple[Finding, ...], unread: tuple[str, ...]) -> None:
    groups = group_findings(findings)
    for group in groups[:FINDINGS_SHOWN]:
        line = Text(f"{group.first.severity}[{group.first.rule}]", style=SEVERITY_STYLE[group.first.severity])
        more = f" (and {group.count - 1:,} more like this)" if group.count > 1 else ""
        say(console, line.append(f" {told_at(group.first)}{more}", style="default"))
    if groups:
        say(console, f"all findings, and what to do: `ckptctl validate {shlex.quote(safe(path))}`")
    named = {finding.artifact for finding in findings}
    for problem in unread[:FINDINGS_SHOWN]:
        what, _, why = problem.partition(": ")
        is_told = any(what.startswith(f"{artifact} is ") for artifact in named)
        say(console, f"not shown: {safe(what if is_told or not why else problem)}", style="yellow")
    if len(unread) > FINDINGS_SHOWN:
        say(console, f"and {plural(len(unread) - FINDINGS_SHOWN, 'part')} more", style="yellow")


def _title(console: Console, text: str) -> None:
    console.print()
    say(console, text, 0, style="bold")


def _draw_participants(console: Console, result: SnapshotInspection) -> None:
    if not result.participants:
        return
    _title(console, "participants")
    table = open_table(
        "  server", "component", "files", "size", "saved", right=frozenset({"files", "size"}), fold=frozenset({"saved"})
    )
    for item in result.participants:
        name = safe(item.server_name)
        if item.participant_name != item.server_name:
            name += f" ({safe(item.participant_name)})"
        saved = ", ".join(_saved(what, count) for what, count in item.counts.items())
        component = COMPONENTS.get(item.component, safe(item.component))
        table.add_row(Text(f"  {name}"), Text(component), f"{item.files:,}", size(item.size_bytes), Text(saved))
    draw_table(console, table)


def _saved(what: str, count: int) -> str:
    """`2 sessions`, `1 session`; the names are those of the replies."""
    words = safe(what).replace("_", " ")
    return f"{count:,} {words.removesuffix('s') if count == 1 else words}"


def _draw_groups(console: Console, result: SnapshotInspection) -> None:
    if result.acknowledgements:
        _title(console, f"{plural(result.acknowledgements, 'acknowledgement')} still owed")
    if not result.groups:
        return
    _title(console, "unfinished groups")
    table = open_table("  status", "granularity", "groups", "rollouts", right=frozenset({"groups", "rollouts"}))
    for item in result.groups:
        table.add_row(
            Text(f"  {safe(item.status)}"), Text(safe(item.granularity)), f"{item.groups:,}", f"{item.rollouts:,}"
        )
    draw_table(console, table)


def _draw_rollouts(console: Console, result: SnapshotInspection, verbose: int) -> None:
    if not result.rollouts:
        return
    _title(console, "rollouts")
    groups = [(key, list(found)) for key, found in groupby(result.rollouts, key=_group_of)]
    shown = groups if verbose else groups[:GROUPS_SHOWN]
    names = {id(item): _short_name(item) for _, found in shown for item in found}
    longest = max(len("rollout"), *(len(name) for name in names.values()))
    widths = (longest + 4, 7, 10, 13, 4, 4)
    for place, ((group, is_claimed), found) in enumerate(shown):
        say(console, f"group {safe(group)}{'' if is_claimed else ', unknown to the ledger'}", style="dim")
        table = open_table(
            "    rollout",
            "attempt",
            "status",
            "boundary",
            "turn",
            "rows",
            "revisions",
            right=frozenset({"attempt", "turn", "rows"}),
            fold=frozenset({"revisions"}),
        )
        table.show_header = place == 0
        for column, width in zip(table.columns, widths, strict=False):
            column.min_width = width
        for item in found:
            table.add_row(Text(f"    {names[id(item)]}"), *_rollout_cells(item))
        draw_table(console, table)
    if len(groups) > len(shown):
        say(console, f"and {plural(len(groups) - len(shown), 'group')} more (`-v`, or `--format json`)")


def _group_of(item: RolloutView) -> tuple[str, bool]:
    """The group that a rollout stands under, and whether the ledger has it; of others the name tells."""
    if item.group_id is not None:
        return item.group_id, True
    group, _, index = item.rollout_id.rpartition("_g")
    return (group, False) if group and index.isdigit() else (item.rollout_id, False)


def _short_name(item: RolloutView) -> str:
    """Below its group a rollout is called by what follows the group's id."""
    group, _ = _group_of(item)
    is_below = item.rollout_id.startswith(f"{group}_")
    return safe(item.rollout_id[len(group) :] if is_below else item.rollout_id)


def _rollout_cells(item: RolloutView) -> tuple[Text | str, ...]:
    style = {"sealed": "green", "dispatched": ""}.get(item.status or "", "yellow")
    revisions = "none recorded" if item.boundary_kind and item.revisions is None else ""
    if item.revisions:
        revisions = ", ".join(f"{safe(server)} {revision}" for server, revision in item.revisions.items())
    return (
        str(item.attempt_index),
        Text(safe(item.status or "-"), style=style),
        Text(safe(item.boundary_kind or "-")),
        "-" if item.turn_index is None else str(item.turn_index),
        "-" if item.staged_rows is None else f"{item.staged_rows:,}",
        Text(revisions),
    )


def _draw_replay(console: Console, result: SnapshotInspection, verbose: int) -> None:
    if not result.replay:
        return
    _title(console, "finished groups")
    table = open_table("  group", "rows", "weights", "target step", right=frozenset({"rows", "weights", "target step"}))
    shown = result.replay if verbose else result.replay[:ROWS_SHOWN]
    for item in shown:
        weights = str(item.start_weight)
        weights += "" if item.end_weight == item.start_weight else f" to {item.end_weight}"
        table.add_row(
            Text(f"  {safe(item.group_id)}"),
            f"{item.rows:,}",
            weights,
            "-" if item.target_step is None else str(item.target_step),
        )
    draw_table(console, table)
    if len(result.replay) > len(shown):
        say(console, f"and {plural(len(result.replay) - len(shown), 'group')} more (`-v`, or `--format json`)")


def _draw_data_plane(console: Console, plane: DataPlaneView) -> None:
    if plane.partitions or plane.binding is not None:
        units = "" if plane.storage_units is None else f" ({plural(plane.storage_units, 'storage unit')})"
        _title(console, f"data plane{units}")
    if plane.partitions:
        table = open_table("  partition", "keys", "fields", "values", right=frozenset({"keys", "fields", "values"}))
        for item in plane.partitions:
            table.add_row(
                Text(f"  {safe(item.partition_id)}"), f"{item.keys:,}", f"{item.fields:,}", f"{item.produced_values:,}"
            )
        draw_table(console, table)
    found = plane.binding
    if found is None:
        return
    say(
        console,
        f"bound to step {found.train_step}, version {found.trainer_version}, epoch {found.epoch}, "
        f"sampler {safe(found.sampler_name)}, mode {safe(found.mode)}",
    )
    for what, count, digest in (
        ("replay metadata", found.replay_groups, found.replay_manifest_digest),
        ("recovery ledger", found.recovery_groups, found.recovery_sha256),
    ):
        if digest is not None:
            groups = "" if count is None else f", {plural(count, 'group')}"
            say(console, f"{what}{groups}:")
            say(console, digest, 4, style="dim")


def _draw_parts(console: Console, parts: Iterable[PartSize]) -> None:
    table = open_table("  part", "files", "size", right=frozenset({"files", "size"}))
    for item in parts:
        table.add_row(Text(f"  {safe(item.name)}"), f"{item.files:,}", size(item.bytes))
    if table.row_count:
        _title(console, "parts")
        draw_table(console, table)
