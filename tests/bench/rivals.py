"""What ckptctl is measured against: the plain way to do the same, in as few lines as an engineer would write it."""

import hashlib
import importlib
import os
import pickle
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
NonEmpty = Annotated[str, Field(min_length=1)]


class ContinuationLine(BaseModel):
    """One line of `continuations.jsonl`, as a per-line reader would check it."""

    model_config = ConfigDict(strict=True, extra="forbid")

    schema_version: Literal[1]
    rollout_id: Name
    attempt_index: Annotated[int, Field(ge=0)]
    capture_key: Name
    last_committed_model_call_id: NonEmpty
    resource_state_revisions: dict[str, Annotated[int, Field(ge=0)]] | None


class ReferenceLine(BaseModel):
    """One line of `storage-references.jsonl`, as a per-line reader would check it."""

    model_config = ConfigDict(strict=True, extra="forbid")

    schema_version: Literal[1]
    capture_key: Name
    boundary_model_call_id: NonEmpty
    kind: NonEmpty
    key: NonEmpty


def duckdb_or_none(continuations: bytes, references: bytes, keys: Iterable[str]) -> dict[str, Callable[[], Any]]:
    """DuckDB's anti-joins of the same files, where it is installed."""
    try:
        duckdb: Any = importlib.import_module("duckdb")
    except ImportError:
        print("duckdb not installed: its anti-joins were not compared (`make bench` installs it)")
        return {}
    folder = Path(tempfile.mkdtemp(prefix="ckptctl-bench-"))
    roots, listed, known = (folder / name for name in ("continuations.json", "references.json", "keys.csv"))
    roots.write_bytes(continuations)
    listed.write_bytes(references)
    known.write_text("key\n" + "\n".join(keys) + "\n")
    database = duckdb.connect()
    database.execute(f"create table keys as select * from read_csv('{known}', header = true)")

    def join() -> None:
        missing = database.execute(
            f"select count(*) from read_ndjson('{listed}') r anti join keys k on r.key = k.key"
        ).fetchall()
        stray = database.execute(
            f"select count(*) from read_ndjson('{listed}') r anti join read_ndjson('{roots}') c on r.capture_key = c.capture_key "
            "and r.boundary_model_call_id = c.last_committed_model_call_id"
        ).fetchall()
        assert missing == stray == [(0,)]

    return {f"duckdb {duckdb.__version__} anti-joins": join}


def read_files(paths: Iterable[Path]) -> int:
    """Read every byte of every file and do nothing with it."""
    return sum(len(path.read_bytes()) for path in paths)


class _Anything:
    """Stands for whatever a pickle wants to build."""

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, _: Any) -> None:
        pass


class RestrictedUnpickler(pickle.Unpickler):
    """Builds no foreign object, but every tensor's bytes."""

    def find_class(self, module: str, name: str) -> Any:
        """An inert stand-in for every global."""
        return _Anything


def unpickle_restricted(path: Path) -> Any:
    """The whole object tree of a file, with stand-ins."""
    with path.open("rb") as file:
        return RestrictedUnpickler(file).load()


def hash_bare(messages: Sequence[int], threads: int) -> None:
    """`hashlib.sha256` over messages of these sizes, shared out to threads, and nothing else."""
    data = os.urandom(1 << 20)

    def work(sizes: Sequence[int]) -> None:
        for size in sizes:
            hasher = hashlib.sha256()
            while size > len(data):
                hasher.update(data)
                size -= len(data)
            hasher.update(memoryview(data)[:size])
            hasher.digest()

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, [messages[first::threads] for first in range(threads)]))
