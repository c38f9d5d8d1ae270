"""Findings from evidence: every invariant of a snapshot as a named rule. `ALL_RULES` is the catalogue, `run` the engine."""

from ckptctl.rules._registry import assemble
from ckptctl.rules.anchor import RULES as _ANCHOR
from ckptctl.rules.binding import RULES as _BINDING
from ckptctl.rules.checksums import RULES as _CHECKSUMS
from ckptctl.rules.durability import RULES as _DURABILITY
from ckptctl.rules.fingerprint import RULES as _FINGERPRINT
from ckptctl.rules.inventory import RULES as _INVENTORY
from ckptctl.rules.ledger import RULES as _LEDGER
from ckptctl.rules.manifest import RULES as _MANIFEST
from ckptctl.rules.participant import RULES as _PARTICIPANT
from ckptctl.rules.staged_links import RULES as _STAGED_LINKS
from ckptctl.rules.staged_rows import RULES as _STAGED_ROWS

ALL_RULES = assemble(
    _ANCHOR,
    _BINDING,
    _CHECKSUMS,
    _DURABILITY,
    _FINGERPRINT,
    _INVENTORY,
    _LEDGER,
    _MANIFEST,
    _PARTICIPANT,
    _STAGED_ROWS,
    _STAGED_LINKS,
)

__all__ = ["ALL_RULES"]
