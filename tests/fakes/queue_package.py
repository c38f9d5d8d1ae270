"""A TransferQueue without Ray: the embedded plane behind the calls that the package has, writing and reading the same files."""

import threading
from pathlib import Path

from ckptctl.errors import UnreachableError
from ckptctl.sim.data_plane import EmbeddedDataPlane
from ckptctl.sim.plane_files import PlaneIdentity, decode_plane, encode_plane


class FakeQueue:
    """Implements `live_tq.QueuePackage`; notes what it was asked, and can be silent or fail."""

    def __init__(self, units=2):
        self.plane = EmbeddedDataPlane(units=units, unit_size=100)
        self.plane._is_mutating = True  # the caller's barrier is not the queue's
        self.units = units
        self.asked, self.threads = [], set()
        self.failures = {}
        self.silent_at, self.goes_on = None, threading.Event()
        self.saves_rows = True

    def _note(self, operation):
        self.asked.append(operation)
        self.threads.add(threading.get_ident())
        if operation == self.silent_at:
            assert self.goes_on.wait(timeout=60), "nobody lets the queue go on"
        if operation in self.failures:
            raise self.failures[operation]

    def connect(self, address, timeout_s):
        self._note("connect")
        if address == "nowhere":
            raise UnreachableError(server="Ray", operation="attach", detail="none answers at `nowhere`")
        return self.units

    def disconnect(self):
        self._note("disconnect")

    def partitions(self):
        self._note("partitions")
        return list(self.plane.image().partitions)

    def list(self, partition_id):
        self._note("list")
        return {key: self.plane.tags(partition_id, key) for key in self.plane.keys(partition_id)}

    def put(self, partition_id, key, fields, tags):
        self._note("put")
        self.plane.register(partition_id, ())
        self.plane.put(partition_id, key, fields, tags)

    def get(self, partition_id, keys):
        self._note("get")
        there = self.plane.keys(partition_id)
        return {key: self.plane.get(partition_id, key) for key in keys if key in there}

    def clear(self, partition_id, keys):
        self._note("clear")
        self.plane.clear(partition_id, keys)

    def save(self, folder, metadata):
        identity = PlaneIdentity(self.plane.controller_id, self.plane.unit_ids, self.plane.unit_size)
        for name, data in encode_plane(self.plane.image(), identity, metadata):
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(
                data if self.saves_rows else data.replace(b'"storage_saved": true', b'"storage_saved": false')
            )
        self._note("save")

    def load(self, folder):
        self._note("load")
        image, _ = decode_plane(lambda name: Path(folder, name).read_bytes(), units=self.units)
        self.plane.load(image)
