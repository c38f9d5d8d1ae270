"""Runs ckptctl in this process and kills it with SIGKILL at a step of its transaction: `killed_ckptctl.py STEP WHEN ARGUMENT...`.

WHEN is `intent` (the step's intent was just written) or `effect` (its effect is done, the outcome is about to be written). Only the
journal's writer is watched; the product has no switch for this.
"""

import os
import signal
import sys

from ckptctl.__main__ import main
from ckptctl.adapters.journal import FileJournalWriter

step, when = sys.argv[1:3]
append = FileJournalWriter.append


def watched(self, record, *, sync):
    if when == "effect" and (record["event"], record.get("step")) == ("outcome", step):
        os.kill(os.getpid(), signal.SIGKILL)
    append(self, record, sync=sync)
    if when == "intent" and (record["event"], record.get("step")) == ("intent", step):
        os.kill(os.getpid(), signal.SIGKILL)


FileJournalWriter.append = watched
sys.argv = ["ckptctl", *sys.argv[3:]]
sys.exit(main())
