"""A cluster on a live queue, without one: what is planned, what is refused, and where its owner's files are."""

from importlib.util import find_spec

import pytest

from ckptctl.controller.live_tq import LiveTransferQueue
from ckptctl.errors import UsageError
from ckptctl.sim import cluster
from ckptctl.sim.cluster_options import ClusterOptions
from ckptctl.sim.controller_process import build_server
from ckptctl.sim.controller_settings import ControllerSettings
from ckptctl.sim.live_data_plane import LiveDataPlane
from ckptctl.sim.processes import ProcessIdentity
from ckptctl.sim.queue_host import create_queue_app, prepare, scratch_folder
from ckptctl.sim.settings import QueueSettings, decode_settings
from tests.fakes.queue_package import FakeQueue


def planned(tmp_path, **options):
    return {item.name: item for item in cluster._planned(str(tmp_path), ClusterOptions(**options), 1, False)}


def test_the_queues_owner_is_one_more_process(tmp_path):
    """The controller is told where it is; with rows in its own memory there is none."""
    live, embedded = planned(tmp_path, data_plane="transferqueue", storage_units=3), planned(tmp_path)
    owner, controller = live["transfer_queue"].settings, live["controller"].settings

    assert ("transferqueue", 3) == (owner.role, owner.storage_units)
    assert ("transferqueue", f"http://127.0.0.1:{owner.port}") == (controller.data_plane, controller.queue_url)
    assert owner == decode_settings(owner.model_dump_json().encode())
    assert {"transfer_queue"} == live.keys() - embedded.keys()
    assert ("embedded", None) == (embedded["controller"].settings.data_plane, embedded["controller"].settings.queue_url)


@pytest.mark.skipif(find_spec("ray") is not None, reason="the extra is installed here")
def test_without_the_extra_no_cluster_is_started(tmp_path):
    """Refused before anything is written or started."""
    with pytest.raises(UsageError, match=r"needs `ray` and `transfer_queue`"):
        cluster.require_playable(ClusterOptions(data_plane="transferqueue"))


def test_an_owner_needs_a_token(tmp_path):
    """Whoever has none could not be told from others on this host."""
    settings = QueueSettings(name="transfer_queue", port=0, run_dir=str(tmp_path))
    with pytest.raises(UsageError, match="is not set"):
        create_queue_app(settings, None)

    environment = {"RAY_AUTH_MODE": "disabled"}
    prepare(environment, "secret")

    assert ("token", "secret") == (environment["RAY_AUTH_MODE"], environment["RAY_AUTH_TOKEN"])


def test_a_controller_on_a_queue_must_know_where_it_is(tmp_path):
    """Settings without the place are refused."""
    config = tmp_path / "ckptctl.yaml"
    config.write_text(f"checkpointing: {{checkpoint_dir: '{tmp_path / 'checkpoints'}'}}\n")
    settings = ControllerSettings(
        port=0, run_dir=str(tmp_path), config_path=str(config), agents={"a": "http://a"}, data_plane="transferqueue"
    )

    with pytest.raises(UsageError, match="has no `queue_url`"):
        build_server(settings, "token")


def test_the_owners_files_are_named_after_it():
    """Short, since sockets lie in it, and nobody else's."""
    folder = scratch_folder(ProcessIdentity(12, 345))

    assert folder.endswith("/ckptctl-ray-12-345")
    assert folder != scratch_folder(ProcessIdentity(12, 346))


def test_rows_change_inside_a_mutation_only():
    """As on the embedded plane: a change outside is a bug here, not a row that no cut sees."""
    plane = LiveDataPlane(LiveTransferQueue.attach_to(FakeQueue(), None, timeout_s=10))
    for change in (
        lambda: plane.put("rows", "a", {}, None),
        lambda: plane.clear("rows", ["a"]),
        lambda: plane.register("rows", ()),
    ):
        with pytest.raises(AssertionError, match="outside `mutation"):
            change()
