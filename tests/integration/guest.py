"""A process that attaches to a live queue from outside: `python guest.py ADDRESS FOLDER leave|die`, as a controller would."""

import os
import signal
import sys

from ckptctl.controller.live_tq import LiveTransferQueue
from ckptctl.domain.dataplane import TensorValue


def main(address: str, folder: str, end: str) -> None:
    queue = LiveTransferQueue.attach(address)
    row = {"ids": TensorValue("int64", (2,), bytes(15) + b"\1"), "flag": TensorValue("bool", (), b"\1")}
    queue.put("guests", end, row, {"from": end})
    assert row == queue.get("guests", end)
    if end == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    queue.save(folder, {"by": end})
    queue.detach()
    print("units", queue.storage_units)


if __name__ == "__main__":
    main(*sys.argv[1:])
