"""Whole snapshots against the real programs: one of the embedded cluster, and those named in CKPTCTL_INTEGRATION_SNAPSHOT."""

import io
import shutil

from ckptctl.domain.dataplane import STAGED_FIELDS
from ckptctl.formats.staged_row import call_digest, decode_staged_row, row_tags
from tests.integration.real_queue import ReadPlane, check_same_rows


def test_torch_reads_the_sidecars(snapshot, torch, row_meta):
    """Weights-only loading takes ledger, dataloader state and replay metadata; the ledger's groups are where they should be."""
    values = {}
    for name in ("rollout_recovery.pt", "train_dataloader.pt", "replay_buffer_metadata.pt"):
        if (snapshot / name).exists():
            values[name] = torch.load(io.BytesIO((snapshot / name).read_bytes()), weights_only=True)

    assert {"rollout_recovery.pt", "train_dataloader.pt"} <= values.keys()
    assert 3 == values["rollout_recovery.pt"]["schema_version"]
    assert isinstance(values["train_dataloader.pt"], dict)
    for group in values.get("replay_buffer_metadata.pt", {}).get("groups", []):
        assert isinstance(group["meta"], row_meta)


def test_transferqueue_serves_the_same_rows(snapshot, queue, tmp_path):
    """The data plane loads, and every key, tag and row is what we read in the files."""
    shutil.copytree(snapshot / "data_plane", tmp_path / "data_plane")  # loading may rename folders

    assert check_same_rows(tmp_path / "data_plane", queue) > 0


def test_every_staged_row_digests_to_its_own_name(snapshot):
    """What the real queue serves is the row that the ledger's digests mean."""
    read = ReadPlane(snapshot / "data_plane")
    for key, tags in read.tags().get("rollout_staging", {}).items():
        row = decode_staged_row({field: read.value("rollout_staging", key, field) for field in STAGED_FIELDS})

        assert (key, row.digest) == (row.key, call_digest(row))
        assert tags == row_tags(row)
