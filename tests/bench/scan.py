"""The scan of a storage unit without its tensor bytes, against an unpickler that runs nothing but builds everything."""

import subprocess
import sys
import tempfile
from pathlib import Path

from ckptctl.adapters.local_store import LocalStore
from ckptctl.domain.dataplane import StorageUnit, TensorValue
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.formats.tq_checkpoint import decode_storage_unit
from ckptctl.workflows.collection import seldom_collected
from tests.bench.measure import MEBIBYTE, compare, in_turns
from tests.bench.rivals import unpickle_restricted
from tests.queue_pickles import a_queue_unit, staged_columns

NAME = "su_0_TQ_STORAGE_UNIT_00000000.pkl"


def scan(path: Path) -> StorageUnit:
    """As `validate` does it."""
    with seldom_collected(), LocalStore().open_source(str(path)) as source:
        return decode_storage_unit(source, NAME, DEFAULT_LIMITS)


def bench_scan(mebibytes: int, rounds: int) -> None:
    """Row 4 of the table, for three mixes of tensors: the form is the standard pickler's, as TransferQueue writes it."""
    size = mebibytes * MEBIBYTE
    tokens = 1700
    long = {index: TensorValue("int64", (tokens,), bytes(8 * tokens)) for index in range(size // (8 * tokens))}
    _compare("token columns of 1,700", {"input_ids": long}, rounds)
    rows = size // (1024 * 16 + 24 * 300)
    _compare("the 24 fields of staged rows of 1,024 tokens", staged_columns(range(0, 2 * rows, 2), 1024), rounds)
    scalars = {index: TensorValue("int64", (), bytes(8)) for index in range(size // 8 // 400)}
    _compare("scalars only", {"input_lengths": scalars}, rounds)


def _peak_mib(work: str, path: Path) -> float:
    """Beyond what a process of its own holds before it begins."""
    program = (
        "import sys; from pathlib import Path; from tests.bench import scan; from tests.bench.measure import status_mib; "
        f"before = status_mib('VmRSS'); found = scan.{work}(Path(sys.argv[1])); print(status_mib('VmHWM') - before)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], check=True, capture_output=True, text=True)
    return float(done.stdout)


def _compare(what: str, rows: dict[str, dict[int, TensorValue]], rounds: int) -> None:
    count = sum(map(len, rows.values()))
    with tempfile.TemporaryDirectory(prefix="ckptctl-bench-") as folder:
        path = Path(folder) / NAME
        path.write_bytes(a_queue_unit("TQ_STORAGE_UNIT_00000000", rows, next(iter(rows.values()))))
        rows.clear()
        file_mib = path.stat().st_size / MEBIBYTE
        times = in_turns(
            {"ckptctl": lambda: scan(path), "restricted pickle.Unpickler": lambda: unpickle_restricted(path)}, rounds
        )
        ours, theirs = _peak_mib("scan", path), _peak_mib("unpickle_restricted", path)
    compare(
        f"data plane scan, {what}: {count:,} tensors, {file_mib:.0f} MiB",
        times,
        f"peak memory: ckptctl {ours:.0f} MiB, Unpickler {theirs:.0f} MiB",
        "goals: a ratio of 2, and 40 MiB for 200 MiB of tensors",
    )
