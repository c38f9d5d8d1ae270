"""The model ledger's folder (participant-protocol section 11.2): custody files, their index, storage references, manifest.

Decides which columns of a custody line are looked at and what a policy model writes at commit. Custody files are stored byte for
byte; they are never written again from their rows. What the rows mean for a continuation is `domain.lineage`, whether the folder
agrees with the agents' is left to the rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ckptctl.domain import ids
from ckptctl.domain.canonical import EMPTY_LIST_DIGEST, pretty1, roots_digest
from ckptctl.domain.digest import sha256_hex
from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS, Limits
from ckptctl.domain.lineage import storage_references
from ckptctl.domain.participant import Execution, ModelCommitReply
from ckptctl.domain.participant_files import ModelManifest
from ckptctl.domain.rows import ContinuationRow, LineageIndexRow, LineageRow
from ckptctl.formats.canonical_json import at_line, convert_row, lines_of, load_object
from ckptctl.formats.participant_files import (
    MANIFEST_FILE,
    MODEL_MANIFEST_SCHEMA,
    BuiltArtifacts,
    encode_rows,
    located,
    reference_to,
)
from ckptctl.formats.tar_archive import build_archives

__all__ = ["build_model_artifacts", "decode_lineage", "encode_lineage_line", "storage_references"]

_PLAIN_LINE_BYTES = 1 << 20
"""Longer lines are read by the strict parser, which counts their values."""
LINEAGE_INDEX_FILE, STORAGE_REFERENCES_FILE, LINEAGE_ARCHIVE_PREFIX = (
    "lineage-index.jsonl",
    "storage-references.jsonl",
    "lineage-part",
)


def decode_lineage(data: bytes, limits: Limits = DEFAULT_LIMITS) -> tuple[LineageRow, ...]:
    """The rows of one custody file; columns that checkpoints do not use may hold anything.

    Raises:
        DefectError: with up to `findings_shown` bad lines.
    """
    found: list[LineageRow] = []
    defects: list[Defect] = []
    for number, line in lines_of(data):
        try:
            found.append(convert_row(_line_object(line, limits), LineageRow))
        except DefectError as error:
            defects.extend(at_line(defect, number) for defect in error.defects)
            if len(defects) >= limits.findings_shown:
                break
        if len(found) > limits.lineage_rows:
            defects.append(Defect(f"has more than {limits.lineage_rows} rows", f"line {number}"))
            break
    if defects:
        raise DefectError(*defects[: limits.findings_shown])
    return tuple(found)


def encode_lineage_line(columns: Mapping[str, Any]) -> bytes:
    """One line of a custody file: compact, keys sorted, raw UTF-8."""
    return msgspec.json.encode(dict(columns), order="sorted") + b"\n"


def _line_object(line: bytes, limits: Limits) -> Any:
    """One line as an object; what its writer would write again exactly so needs no strict parser."""
    if (
        len(line) <= min(_PLAIN_LINE_BYTES, limits.json_line_bytes)
        and line.count(b"{") + line.count(b"[") <= limits.json_depth
    ):
        try:
            value = msgspec.json.decode(line)
            if isinstance(value, dict) and msgspec.json.encode(value, order="sorted") == line:
                return value
        except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError):
            pass  # the strict parser says why
    return load_object(line, limits, max_bytes=limits.json_line_bytes)


def build_model_artifacts(
    checkpoint_id: str,
    server_name: str,
    roots: Iterable[ContinuationRow],
    custody_files: Mapping[str, bytes],
    tombstones: Iterable[Execution],
    source_attempts: Iterable[Execution],
    excluded_inactive: int,
) -> BuiltArtifacts[ModelCommitReply]:
    """Everything a policy model writes at commit, and its reply. Custody files that no root names are left out.

    Raises:
        DefectError: when a root has no custody file, or its boundary call not exactly one row there.
    """
    folder = ids.model_folder(server_name)
    ordered_roots = sorted(roots, key=lambda item: (item.capture_key, item.last_committed_model_call_id))
    keys = sorted({root.capture_key for root in ordered_roots} & custody_files.keys())
    lineage = {key: decode_lineage(custody_files[key]) for key in keys}
    references = storage_references(ordered_roots, lineage)
    payloads = {ids.lineage_file_name(key): custody_files[key] for key in keys}
    archives = build_archives(LINEAGE_ARCHIVE_PREFIX, payloads.items())
    index = _encode_index(keys, located(archives, payloads), lineage)
    storage = encode_rows(references)
    row_count = sum(map(len, lineage.values()))
    tombstoned = _sorted_executions(tombstones)
    storage_index = reference_to(folder, STORAGE_REFERENCES_FILE, storage, len(references))
    manifest = ModelManifest(
        schema_version=MODEL_MANIFEST_SCHEMA,
        checkpoint_id=checkpoint_id,
        server_name=server_name,
        archives=[archive.entry for archive in archives],
        lineage_index=reference_to(folder, LINEAGE_INDEX_FILE, index, len(keys)),
        rollout_count=len(keys),
        row_count=row_count,
        continuation_roots=len(ordered_roots),
        continuation_roots_sha256=roots_digest(ordered_roots),
        generation_cuts_sha256=EMPTY_LIST_DIGEST,
        generation_cut_records=0,
        excluded_inactive=excluded_inactive,
        storage_reference_index=storage_index,
        tombstones=tombstoned,
        source_attempts=_sorted_executions(source_attempts),
    )
    data = pretty1(manifest.model_dump(mode="json"))
    files = (
        *((archive.name, archive.data) for archive in archives),
        (LINEAGE_INDEX_FILE, index),
        (STORAGE_REFERENCES_FILE, storage),
        (MANIFEST_FILE, data),
    )
    reply = ModelCommitReply(
        rollouts=len(keys),
        rows=row_count,
        excluded_tombstoned=len(tombstoned),
        excluded_inactive=excluded_inactive,
        manifest_digest=sha256_hex(data),
        storage_reference_index=storage_index,
    )
    return BuiltArtifacts(folder, files, reply)


def _encode_index(
    keys: Iterable[str],
    places: Iterable[tuple[str, str, bytes]],
    lineage: Mapping[str, tuple[LineageRow, ...]],
) -> bytes:
    return encode_rows(
        LineageIndexRow(key, archive, member, sha256_hex(payload), len(lineage[key]), len(payload))
        for key, (archive, member, payload) in zip(keys, places, strict=True)
    )


def _sorted_executions(pairs: Iterable[Execution]) -> list[Execution]:
    return sorted(pairs, key=lambda item: (item.rollout_id, item.attempt_index))
