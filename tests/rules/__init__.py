"""Samples of every rule, and the tests that run them. Importing a family's module registers its samples."""

from tests.rules import (
    anchor_samples,
    binding_samples,
    checksum_samples,
    inventory_samples,
    ledger_samples,
    manifest_samples,
    participant_link_samples,
    participant_live_samples,
    participant_samples,
    staged_samples,
)

FAMILIES = (
    anchor_samples,
    binding_samples,
    checksum_samples,
    inventory_samples,
    ledger_samples,
    manifest_samples,
    participant_link_samples,
    participant_live_samples,
    participant_samples,
    staged_samples,
)
