"""The checksum pass of full validation against `b3sum` on the same files, and against `restic check --read-data` per CPU second.

`python -m tests.bench.checksum_pass --mebibytes 2048` publishes a snapshot of that size and times, one after the other so that what else
the machine does hits all of them: our pass (the checksum file read, every listed file digested and compared), `b3sum` on all threads (the
blake3 package where it is not installed), and the whole `validate --level full`. The cache is warm. Prints ratios, asserts nothing.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from blake3 import blake3

from ckptctl.adapters.local_store import LocalStore
from ckptctl.domain.checksums import FileWork
from ckptctl.domain.dataplane import TensorValue
from ckptctl.domain.ids import CHECKSUMS_FILE
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.formats.checksums_file import decode_checksums
from ckptctl.workflows.validate import ValidateRequest, load_evidence, validate
from tests.builders import a_world
from tests.published import a_published_run
from tests.world import a_replay

MEBIBYTE = 1 << 20
VALUE_BYTES = 16 * MEBIBYTE
FIELD = "hidden_states"
"""A column that makes the finished samples large."""
SMALLER = ((64 << 10, 2000), (1 << 20, 200), (16 << 20, 16))
"""Sizes and numbers of files of one size: where the loop ends and the child begins."""


def a_large_snapshot(root: Path, mebibytes: int) -> Path:
    """A published snapshot whose finished samples hold so many bytes, of which no two are alike."""
    world = a_world()
    per_sample = max(1, mebibytes * MEBIBYTE // len(world.samples))
    tensor = TensorValue("uint8", (per_sample,), bytes(per_sample))
    samples = {name: {**fields, FIELD: tensor} for name, fields in world.samples.items()}
    groups = [
        group.model_copy(update={"meta": group.meta.model_copy(update={"fields": [*(group.meta.fields or ()), FIELD]})})
        for group in world.replay.groups
    ]
    world = a_world(samples=samples, replay=a_replay(groups))
    return a_published_run(root, world, before=_fill)


def _fill(staged: Path) -> None:
    """Give the large tensors bytes that neither a compressor nor a store that keeps equal pieces once can save."""
    for name, part in load_evidence(LocalStore(), str(staged)).units.items():
        assert part.value is not None, part.reason
        with (staged / "data_plane" / "simple_storage" / name).open("r+b") as unit:
            for value in part.value.rows.get(FIELD, {}).values():
                unit.seek(value.blob_offset)
                for offset in range(0, value.byte_count, VALUE_BYTES):
                    unit.write(os.urandom(min(VALUE_BYTES, value.byte_count - offset)))


def checksum_pass(snapshot: Path) -> None:
    """What full validation does for the checksum file, when nothing else has been read."""
    listed = decode_checksums((snapshot / CHECKSUMS_FILE).read_bytes(), DEFAULT_LIMITS)
    wanted = [FileWork(path, found.bytes) for path, found in listed.files.items()]
    for found in LocalStore().digest_files(str(snapshot), wanted, lambda _: None):
        assert found.blake3 == listed.files[found.path].blake3, found


def digest_all(folder: Path) -> None:
    """Our digests of every file of a folder."""
    wanted = [FileWork(path.name, path.stat().st_size) for path in sorted(folder.iterdir())]
    assert all(found.blake3 for found in LocalStore().digest_files(str(folder), wanted, lambda _: None))


def plain_digests(paths: list[Path]) -> tuple[str, Callable[[], object]]:
    """The rival: its name, and what it does."""
    program = shutil.which("b3sum")
    if program is not None:
        names = [str(path) for path in paths]
        return "b3sum", lambda: subprocess.run([program, "--no-names", *names], stdout=subprocess.DEVNULL, check=True)
    return "blake3 package", lambda: [blake3(max_threads=blake3.AUTO).update_mmap(path).digest() for path in paths]


def cpu_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(item.ru_utime + item.ru_stime for item in found)


def best(works: dict[str, Callable[[], object]], rounds: int) -> dict[str, tuple[float, float]]:
    """Name -> shortest wall time and least CPU time of several rounds, in which the works take turns."""
    found = {name: (float("inf"), float("inf")) for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            began, used = time.perf_counter(), cpu_s()
            work()
            wall, cpu = time.perf_counter() - began, cpu_s() - used
            found[name] = (min(found[name][0], wall), min(found[name][1], cpu))
    return found


def compare(title: str, size_bytes: int, ours: Callable[[], object], paths: list[Path], rounds: int) -> None:
    """Our way against the rival on the same files."""
    rival, theirs = plain_digests(paths)
    found = best({"ckptctl": ours, rival: theirs}, rounds)
    (ours_s, ours_cpu_s), (theirs_s, theirs_cpu_s) = found["ckptctl"], found[rival]
    print(f"{title}: {len(paths):,} files, {size_bytes / MEBIBYTE:,.0f} MiB, best of {rounds}")
    print(f"  ckptctl {size_bytes / ours_s / 1e9:6.2f} GB/s ({ours_cpu_s:.2f} CPU s)")
    print(f"  {rival} {size_bytes / theirs_s / 1e9:6.2f} GB/s ({theirs_cpu_s:.2f} CPU s)")
    print(
        f"  ratio of bytes/s {theirs_s / ours_s:.2f} (goal 0.9); of bytes per CPU second {theirs_cpu_s / ours_cpu_s:.2f}\n"
    )


def compare_with_restic(snapshot: Path, scratch: Path, size_bytes: int, rounds: int) -> None:
    """Bytes per CPU second of our pass and of `restic check --read-data` on a repository with the same files."""
    if shutil.which("restic") is None:
        print("restic not installed: `restic check --read-data` was not compared\n")
        return
    environment = {**os.environ, "RESTIC_PASSWORD": "bench", "RESTIC_REPOSITORY": str(scratch / "restic")}

    def restic(*words: str) -> None:
        subprocess.run(
            ["restic", "--no-cache", "--quiet", *words], env=environment, check=True, stdout=subprocess.DEVNULL
        )

    restic("init")
    restic("backup", str(snapshot))
    found = best({"ckptctl": lambda: checksum_pass(snapshot), "restic": lambda: restic("check", "--read-data")}, rounds)
    ours, theirs = (size_bytes / found[name][1] / 1e9 for name in ("ckptctl", "restic"))
    print(f"the same snapshot in restic, best of {rounds}")
    print(
        f"  ckptctl {ours:6.2f} GB per CPU second, restic check --read-data {theirs:6.2f}; ratio {ours / theirs:.1f} (goal 4)\n"
    )


def bench_checksum_pass(mebibytes: int, rounds: int) -> None:
    """Every comparison."""
    with tempfile.TemporaryDirectory(prefix="ckptctl-bench-") as folder:
        scratch = Path(folder).resolve()
        snapshot = a_large_snapshot(scratch / "run", mebibytes)
        paths = sorted(path for path in snapshot.rglob("*") if path.is_file() and path.name != CHECKSUMS_FILE)
        size_bytes = sum(path.stat().st_size for path in paths)
        compare("checksum pass of a snapshot", size_bytes, lambda: checksum_pass(snapshot), paths, rounds)
        request = ValidateRequest(paths=(str(snapshot),), level="full")
        verdict = validate(LocalStore(), request).verdict
        whole_s, _ = best({"whole": lambda: validate(LocalStore(), request)}, rounds)["whole"]
        print(
            f"whole `validate --level full` of it ({verdict}): {whole_s:.2f} s, {size_bytes / whole_s / 1e9:.2f} GB/s\n"
        )
        compare_with_restic(snapshot, scratch, size_bytes, max(1, rounds // 2))
        shutil.rmtree(scratch / "run")
        for size, count in SMALLER:
            _compare_size(scratch, size, max(2, count * mebibytes // 2048), rounds)


def _compare_size(scratch: Path, size: int, count: int, rounds: int) -> None:
    same = scratch / f"{size}"
    same.mkdir()
    for number in range(count):
        (same / f"{number:06d}").write_bytes(os.urandom(size))
    paths = sorted(same.iterdir())
    compare(f"files of {size >> 10:,} KiB", size * count, lambda: digest_all(same), paths, rounds)
    shutil.rmtree(same)


def main() -> None:
    """Run it alone."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.checksum_pass", description=__doc__)
    parser.add_argument("--mebibytes", type=int, default=2048, help="size of the snapshot (default 2,048)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of which the best counts (default 5)")
    wanted = parser.parse_args()
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}: other work on the machine shows\n")
    bench_checksum_pass(wanted.mebibytes, wanted.rounds)


if __name__ == "__main__":
    main()
