"""Data planes of a TransferQueue that keeps large values in files of their own."""

from tests.integration.real_queue import ReadPlane, check_same_rows, put_everything


def test_offloaded_rows_are_read_from_their_blobs(queues, tmp_path):
    """The SSD variant: rows above the threshold lie in files of their own, the rest as ever."""
    offload = {"enabled": True, "path": str(tmp_path / "ssd"), "threshold_bytes": 24}
    queue = queues.use(units=1, ssd_offload=offload)
    expected = put_everything(queue)
    queue.tq.save_checkpoint(str(tmp_path / "data_plane"))
    read = ReadPlane(tmp_path / "data_plane")

    assert read.plane.units[0].has_ssd
    assert expected == {(key, field): read.value("everything", key, field) for key, field in expected}
    assert {True, False} == {read.stored("everything", key, field).blob_name is not None for key, field in expected}
    assert check_same_rows(tmp_path / "data_plane", queue) > 60
