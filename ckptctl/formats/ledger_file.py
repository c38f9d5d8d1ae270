"""`rollout_recovery.pt`: the recovery ledger in a torch zip, made of plain values only (snapshot-layout section 6).

Decides: rule 48 of the invariants. Exactly the documented fields at every level, all present, none unknown, ints strict;
ledger 4 has `restore_level` in every group, ledger 3 in none. Which other ledgers are recognised is in `ledger_variants`.
Leaves to others: what the values mean together (the LED rules), and the digest of the file's bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.ledger import LEDGER_SCHEMA_VERSION, Ledger
from ckptctl.domain.limits import Limits
from ckptctl.domain.participant import CompletionReceipt
from ckptctl.domain.source import ByteSource
from ckptctl.formats.ledger_variants import refuse_other_ledgers
from ckptctl.formats.pickle_machine import read_pickle
from ckptctl.formats.pickle_writer import write_pickle
from ckptctl.formats.sidecar_values import demand_mapping, naming_groups, plain_value, validated, writable_value
from ckptctl.formats.torch_zip import read_torch_zip, write_torch_zip

_OLD_LEDGER_GLOBALS = frozenset({("_codecs", "encode"), ("nemo_rl.data_plane.interfaces", "KVBatchMeta")})
"""What the withdrawn ledger 2 holds. Read so that it can be recognised; in a ledger that is read they are defects."""

_RECEIPT_FIELDS = frozenset(CompletionReceipt.model_fields)


def decode_ledger(source: ByteSource, limits: Limits) -> Ledger:
    """Decode the ledger.

    Raises:
        DefectError: with every field that is missing, unknown or wrong; unsupported for a ledger of another line.
    """
    tree = read_pickle(
        read_torch_zip(source, limits).pickle_source, allowed=_OLD_LEDGER_GLOBALS, limits=limits.for_sidecar()
    )
    raw = demand_mapping(tree, "the ledger")
    with naming_groups(raw):
        refuse_other_ledgers(raw)
        plain = plain_value(raw, "")
        ledger = validated(Ledger, plain)
        absent = [*_absent_restore_levels(ledger), *_absent_receipt_fields(ledger)]
        if absent:
            raise DefectError(*absent)
    return ledger


def _absent_restore_levels(ledger: Ledger) -> Iterator[Defect]:
    """Where `restore_level` is against the ledger's number: the class has it as optional, the file has not."""
    wanted = ledger.schema_version == 4
    for index, group in enumerate(ledger.groups):
        path = f"groups.{index}.restore_level"
        if wanted and "restore_level" not in group.model_fields_set:
            yield Defect(f"`{path}` is missing", path, "present", "absent")
        if not wanted and "restore_level" in group.model_fields_set:
            yield Defect(f"`{path}` is not a field of this format", path, "no such field", "present")


def _absent_receipt_fields(ledger: Ledger) -> Iterator[Defect]:
    """Fields that a completion receipt may leave out on the wire, but not here."""
    for path, receipt in _completion_receipts(ledger):
        for name in sorted(_RECEIPT_FIELDS - receipt.model_fields_set):
            yield Defect(f"`{path}.{name}` is missing", f"{path}.{name}", "present", "absent")


def _completion_receipts(ledger: Ledger) -> Iterator[tuple[str, CompletionReceipt]]:
    for index, group in enumerate(ledger.groups):
        for place, sibling in enumerate(group.siblings):
            for number, attempt in enumerate(sibling.attempts):
                if attempt.completion_receipt is not None:
                    path = f"groups.{index}.siblings.{place}.attempts.{number}.completion_receipt"
                    yield path, attempt.completion_receipt
    for index, entry in enumerate(ledger.pending_completed_execution_acknowledgements):
        yield f"pending_completed_execution_acknowledgements.{index}.receipt", entry.receipt


def encode_ledger(ledger: Ledger) -> bytes:
    """The file of a ledger of schema 3, the only one that is written.

    Raises:
        ValueError: another schema, or a receipt that holds more than plain values.
    """
    if ledger.schema_version != LEDGER_SCHEMA_VERSION or any(
        group.restore_level is not None for group in ledger.groups
    ):
        raise ValueError(f"only ledger schema {LEDGER_SCHEMA_VERSION} is written")
    return write_torch_zip(write_pickle(writable_value(ledger.model_dump()), 2))
