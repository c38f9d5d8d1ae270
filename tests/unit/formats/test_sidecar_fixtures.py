"""Every sidecar of the shared fixtures: read, or refused with the words its case asks for."""

import json
import resource

import pytest

from ckptctl.domain.canonical import replay_digest
from ckptctl.domain.dataplane import TensorValue
from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.source import BytesSource
from ckptctl.formats.dataloader_file import decode_dataloader, encode_dataloader
from ckptctl.formats.ledger_file import decode_ledger, encode_ledger
from ckptctl.formats.replay_file import decode_replay, encode_replay

CODECS = {
    "rollout_recovery.pt": (decode_ledger, encode_ledger),
    "replay_buffer_metadata.pt": (decode_replay, encode_replay),
    "train_dataloader.pt": (decode_dataloader, encode_dataloader),
}
DAMAGED = {
    "dataloader-empty": ("train_dataloader.pt", "is empty", False),
    "dataloader-zip-bomb": ("train_dataloader.pt", "compressed", False),
    "ledger-older-shape": ("rollout_recovery.pt", "ledger 3 without acknowledgements", True),
    "ledger-unknown-field": ("rollout_recovery.pt", "`groups.3.priority` is not a field", False),
    "recovery-pickle-code": ("rollout_recovery.pt", "`os.system`", False),
    "recovery-shared-doubling": ("rollout_recovery.pt", "grows out of bounds", False),
}


def decode(path):
    return CODECS[path.name][0](BytesSource(path.read_bytes()), DEFAULT_LIMITS)


@pytest.mark.parametrize("folder", ["turn", "norollouts"])
def test_good_sidecars(fixtures, folder):
    """Read, written again, and equal; the replay digest is the one in the file."""
    paths = [path for name in CODECS for path in sorted((fixtures / folder).rglob(name))]
    assert paths
    for path in paths:
        found = decode(path)
        again = BytesSource(CODECS[path.name][1](found))
        assert found == CODECS[path.name][0](again, DEFAULT_LIMITS)
        if path.name == "replay_buffer_metadata.pt":
            assert found.manifest_digest == replay_digest(found.groups)


def test_facts_of_the_good_run(fixtures):
    """Groups of ledger and replay are those that the facts file lists."""
    facts = json.loads((fixtures / "turn.facts.json").read_text())
    snapshot = fixtures / "turn" / "step_1" / "rollout_snapshots" / "snapshot_000002"
    ledger, replay = decode(snapshot / "rollout_recovery.pt"), decode(snapshot / "replay_buffer_metadata.pt")
    text = json.dumps(facts)

    assert 4 == len(ledger.groups)
    assert all(group.group_id in text for group in [*ledger.groups, *replay.groups])
    assert not {group.group_id for group in ledger.groups} & {group.group_id for group in replay.groups}


def test_the_random_state_is_read(fixtures):
    """A sampler's generator is a byte tensor of 5,056."""
    snapshot = fixtures / "turn" / "step_1" / "rollout_snapshots" / "snapshot_000002"
    state = decode(snapshot / "train_dataloader.pt")
    generator = state["_sampler_iter_state"]["sampler_iter_state"]["generator"]

    assert isinstance(generator, TensorValue)
    assert ("uint8", (5056,), 5056) == (generator.dtype, generator.shape, len(generator.data))


def test_older_ledgers_are_recognised(fixtures):
    """The withdrawn line and the shape from before acknowledgements; their other sidecars are read."""
    words = {"step_1": "withdrawn line", "step_2": "ledger 3 without acknowledgements"}
    for path in sorted((fixtures / "legacy").rglob("*.pt")):
        if path.name != "rollout_recovery.pt":
            assert decode(path)
            continue
        with pytest.raises(DefectError, match=words[path.relative_to(fixtures / "legacy").parts[0]]) as caught:
            decode(path)
        assert caught.value.is_unsupported


def test_cases(fixtures):
    """Exactly the damaged sidecars are refused, in the words of their defects, and none makes the process large."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = {}
    for path in sorted((fixtures / "cases").rglob("*.pt")):
        try:
            decode(path)
        except DefectError as error:
            case = path.relative_to(fixtures / "cases").parts[0]
            refused[case] = (path.name, error.defects[0].message, error.is_unsupported)

    assert DAMAGED.keys() == refused.keys()
    for case, (name, words, is_unsupported) in DAMAGED.items():
        assert (name, is_unsupported) == (refused[case][0], refused[case][2])
        assert words in refused[case][1]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10
