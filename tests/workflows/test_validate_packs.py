"""Packed snapshots: the verdict that the directory had, plain tools that read the same files, and packs that are something else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from itertools import islice

import pytest
import zstandard

from ckptctl.adapters.local_store import LocalStore
from ckptctl.adapters.pack_store import PackedReader
from ckptctl.domain.finding import LEVEL_ORDER
from ckptctl.domain.limits import Limits
from ckptctl.errors import NothingThereError, StorageError, UsageError
from ckptctl.formats.tar_blocks import member_headers
from ckptctl.workflows.validate import ValidateRequest, validate
from tests.command_line import REPOSITORY, clean_environment, run
from tests.goldens import SAMPLES
from tests.packs import member, packed, plain, seekable, tar_of, tree_tar
from tests.runs import a_run, damage
from tests.workflows.test_validate_fixtures import CASES, cases  # noqa: F401  # a fixture

MEGABYTES = 600
SNAPSHOT = "step_3/rollout_snapshots/snapshot_000001"


def judged(path, *, limits=None, **request):
    """The report on a path, read through a reader that looks into packs."""
    limits = limits or Limits()
    with PackedReader(LocalStore(), limits) as reader:
        return validate(reader, ValidateRequest(paths=(str(path),), limits=limits, **request))


def said(report, path) -> list[dict]:
    """What a report says of its snapshots, whatever their place is called."""
    targets = [target for target in report.targets if target.kind == "snapshot"]
    return [json.loads(target.model_dump_json(exclude={"path"}).replace(str(path), "PLACE")) for target in targets]


def snapshots_of(root):
    """Anchor and name of every snapshot in a checkpoint directory that is a directory."""
    found = sorted(
        path for path in root.glob("*/rollout_snapshots/snapshot_*") if path.is_dir() and not path.is_symlink()
    )
    return [(path.parent.parent.name, path.name) for path in found]


def assert_same_verdicts(root, folder) -> int:
    """Directory and pack of each snapshot are judged alike, at every level; what cannot be packed is not compared.

    Returns how many were.
    """
    compared = 0
    for anchor, name in snapshots_of(root):
        try:
            pack = packed(root, anchor, name, folder)
        except (AssertionError, StorageError):
            continue
        for level in LEVEL_ORDER:
            directory, inside = (
                judged(root / anchor / "rollout_snapshots" / name, level=level),
                judged(pack, level=level),
            )
            assert said(directory, root) == said(inside, pack), (anchor, name, level)
            assert "valid" == inside.targets[-1].verdict
        compared += 1
    return compared


@pytest.mark.parametrize("sample", sorted(path.name for path in SAMPLES.iterdir() if path.is_dir()))
def test_samples_have_the_verdict_of_their_directory(tmp_path, sample) -> None:
    """Good, damaged, of other schemas, with and without Gym state."""
    roots = sorted((SAMPLES / sample).iterdir()) if sample == "damaged" else [SAMPLES / sample]
    for number, root in enumerate(roots):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert len(snapshots_of(root)) == assert_same_verdicts(root, folder)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_real_snapshots_have_the_verdict_of_their_directory(cases, tmp_path, case) -> None:  # noqa: F811
    """Every damaged case of real snapshots."""
    assert_same_verdicts(cases / case, tmp_path)


def test_real_good_snapshots_have_the_verdict_of_their_directory(fixtures, tmp_path) -> None:
    """A real run; a foreign one of main's branch."""
    assert 0 < assert_same_verdicts(fixtures / "turn", tmp_path)


def test_shards_of_a_pack_merge_to_the_verdict_of_the_whole(tmp_path) -> None:
    """Parts of a pack are divided, judged and merged as those of a directory are."""
    pack = packed(SAMPLES / "published", "bootstrap", "snapshot_000001", tmp_path)
    parts = [tmp_path / f"{number}.json" for number in (1, 2)]
    for number, part in enumerate(parts, 1):
        assert (
            0 == run("validate", str(pack), "--shard", f"{number}/2", "--format", "json", "--output", str(part)).status
        )
    merged = json.loads(run("validate", "--merge", *map(str, parts), "--format", "json").stdout)
    whole = json.loads(run("validate", str(pack), "--level", "full", "--format", "json").stdout)

    assert whole["targets"] == merged["targets"]
    assert "valid" == whole["verdict"]


def test_a_changed_byte_in_a_pack_of_a_published_snapshot(tmp_path) -> None:
    """The checksum file covers what is in a pack as it does in a directory."""
    root = tmp_path / "run"
    shutil.copytree(SAMPLES / "published", root)
    victim = root / "bootstrap/rollout_snapshots/snapshot_000001/train_dataloader.pt"
    victim.write_bytes(flipped(victim.read_bytes()))
    pack = packed(root, "bootstrap", "snapshot_000001", tmp_path)
    report = judged(pack, level="full")

    assert "invalid" == report.verdict
    assert "SUM" in {finding.rule[:3] for finding in report.targets[0].findings}


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def test_a_pack_is_a_target_of_its_own(tmp_path) -> None:
    """Its snapshot first, then the container, with the share of it that was read; level full reads all of it."""
    pack = packed(a_run(tmp_path / "run", step_3=1), "step_3", "snapshot_000001", tmp_path)
    report = judged(pack, level="full")

    assert [("snapshot", f"{pack}/{SNAPSHOT}"), ("pack", str(pack))] == [
        (item.kind, item.path) for item in report.targets
    ]
    coverage = report.targets[1].coverage
    assert (1, 1, os.path.getsize(pack), os.path.getsize(pack), ()) == (
        *(coverage.files_total, coverage.files_checked, coverage.bytes_total, coverage.bytes_checked),
        coverage.unchecked,
    )


@pytest.mark.parametrize(
    "words", [(), ("--level", "quick"), ("--level", "full"), ("--select", "LED"), ("--ignore", "MAN011")]
)
def test_a_broken_pack_is_invalid_whatever_was_asked(tmp_path, words) -> None:
    """13, the pack and the place in it, even where no chosen rule would look at a pack."""
    pack = packed(a_run(tmp_path / "run", step_3=1), "step_3", "snapshot_000001", tmp_path)
    pack.write_bytes(pack.read_bytes()[:-300])
    ran = run("validate", str(pack), *words)

    assert 13 == ran.status
    assert "step_3.snapshot_000001.tar.zst` is damaged" in ran.stdout.replace("\n", " ")


def test_a_damaged_frame_names_what_lies_in_it(tmp_path) -> None:
    """The snapshot cannot be checked where it needs that frame, the pack is invalid and says which files it holds."""
    content = tar_of(
        *(member(str(path.relative_to(SAMPLES / "turn")), path.read_bytes()) for path in sorted((SAMPLES / "turn").rglob("*")) if path.is_file()),
        member("step_3/rollout_snapshots/snapshot_000002/zz", os.urandom(2 << 20)),
    )  # fmt: skip
    data = bytearray(seekable(content))
    data[-(2 << 19)] ^= 1
    pack = tmp_path / "p.tar.zst"
    pack.write_bytes(data)
    standard, full = judged(pack), judged(pack, level="full")

    assert ("valid", "valid") == (standard.verdict, standard.targets[-1].verdict)
    assert ("invalid", "invalid") == (full.verdict, full.targets[-1].verdict)
    assert "it holds `step_3/rollout_snapshots/snapshot_000002/zz`" in full.targets[-1].findings[0].message
    assert "compressed byte" in full.targets[-1].findings[0].location


@pytest.mark.skipif(not (shutil.which("zstd") and shutil.which("tar")), reason="no `zstd` or no `tar` here")
def test_plain_tools_read_it(tmp_path) -> None:
    """`zstd -t`, `zstd -d` and `tar --zstd -x` give back every byte; what they pack is validated too."""
    root = a_run(tmp_path / "run", step_3=1)
    pack = packed(root, "step_3", "snapshot_000001", tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    subprocess.run(["zstd", "-q", "-t", str(pack)], check=True)
    extracted = subprocess.run(["tar", "--zstd", "-xf", str(pack), "-C", str(out)], check=True, capture_output=True)
    tar = subprocess.run(["zstd", "-q", "-d", "-c", str(pack)], check=True, capture_output=True).stdout

    assert b"" == extracted.stderr
    files = {path.relative_to(root): path.read_bytes() for path in (root / SNAPSHOT).rglob("*") if path.is_file()}
    assert files == {path.relative_to(out): path.read_bytes() for path in (out / SNAPSHOT).rglob("*") if path.is_file()}
    assert tarfile.open(fileobj=__import__("io").BytesIO(tar)).getnames()[0] == "step_3"
    for number, words in enumerate(
        (["-C", str(root), "."], ["-C", str(root), "step_3"], ["--format=posix", "-C", str(root), "step_3"])
    ):
        theirs = tmp_path / f"theirs{number}.tar.zst"
        subprocess.run(["tar", "--zstd", "-cf", str(theirs), *words], check=True)
        assert said(judged(root / SNAPSHOT, level="full"), root) == said(judged(theirs, level="full"), theirs)


def test_foreign_packs_of_other_forms(tmp_path) -> None:
    """A whole checkpoint directory, one anchor, a snapshot by name, its bare content: judged as such directories are."""
    root = a_run(tmp_path / "run", step_3=2)
    whole = tmp_path / "whole.tar.zst"
    whole.write_bytes(plain(tree_tar(root)))
    alone = tmp_path / "alone.tzst"
    alone.write_bytes(plain(tree_tar(root / "step_3/rollout_snapshots", form=tarfile.GNU_FORMAT)))
    bare = tmp_path / "no suffix"
    bare.write_bytes(seekable(tree_tar(root / SNAPSHOT)))

    assert ["valid", "valid"] == [target.verdict for target in judged(whole).targets if target.kind == "snapshot"]
    for pack in alone, bare:
        report = judged(pack)
        assert "invalid" == report.verdict
        assert {"MAN001"} == {finding.rule for finding in report.targets[0].findings if finding.severity == "error"}


def test_without_a_seek_table_the_size_decides(tmp_path) -> None:
    """What fits into the memory that is stated is judged; what does not could not be checked (11), with the next step."""
    root = a_run(tmp_path / "run", step_3=1)
    pack = tmp_path / "p.tar.zst"
    pack.write_bytes(plain(tree_tar(root)))
    small = judged(pack, limits=Limits(pack_memory_bytes=50_000))

    assert "valid" == judged(pack).verdict
    assert "incomplete" == small.verdict
    assert (
        "has no seek table, and its content exceeds the 50000 bytes held in memory"
        in small.targets[0].findings[0].message
    )
    assert "unpack it (`tar --zstd -xf`) and validate the directory" in small.targets[0].findings[0].message


def test_what_is_no_packed_snapshot(tmp_path) -> None:
    """Nothing in it: 3. A bundle: 2, and it says so. A file that is neither: 2. A link to a pack: 2."""
    (tmp_path / "empty.tar.zst").write_bytes(seekable(tar_of(member("a", b"x"))))
    (tmp_path / "bundle.tar.zst").write_bytes(seekable(tar_of(member("ckptctl-bundle.json", b"{}"))))
    (tmp_path / "text").write_bytes(b"text")
    (tmp_path / "link.tar.zst").symlink_to(tmp_path / "empty.tar.zst")

    with pytest.raises(NothingThereError, match="no snapshot is packed"):
        judged(tmp_path / "empty.tar.zst")
    with pytest.raises(UsageError, match="is a support bundle, not a packed snapshot"):
        judged(tmp_path / "bundle.tar.zst")
    with pytest.raises(UsageError, match="is no directory and no packed snapshot"):
        judged(tmp_path / "text")
    with pytest.raises(UsageError, match="is a symbolic link"):
        judged(tmp_path / "link.tar.zst")
    assert "invalid" == judged_name(tmp_path, "text.tar.zst", b"text").verdict
    assert 2 == run("inspect", str(tmp_path / "empty.tar.zst")).status


def judged_name(folder, name: str, data: bytes):
    (folder / name).write_bytes(data)
    return judged(folder / name)


def test_the_same_pack_twice_is_judged_once(tmp_path) -> None:
    """As any other path that is given twice."""
    pack = packed(a_run(tmp_path / "run", step_3=1), "step_3", "snapshot_000001", tmp_path)
    with PackedReader(LocalStore()) as reader:
        report = validate(reader, ValidateRequest(paths=(str(pack), str(pack))))

    assert 2 == len(report.targets)


def test_nothing_is_unpacked(tmp_path) -> None:
    """The directory of the pack holds what it held, and so does the directory for temporary files."""
    root = a_run(tmp_path / "run", step_3=1)
    damage(root, "step_3", 1)
    folder, scratch = tmp_path / "packs", tmp_path / "scratch"
    folder.mkdir()
    scratch.mkdir()
    pack = packed(root, "step_3", "snapshot_000001", folder)
    done = subprocess.run(
        [sys.executable, "-m", "ckptctl", "validate", str(pack)],
        cwd=REPOSITORY,
        env={**clean_environment(), "TMPDIR": str(scratch)},
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert 13 == done.returncode
    assert [pack.name] == os.listdir(folder)
    assert [] == os.listdir(scratch)


HOSTILE = {
    "symbolic link": (tar_of(member("step_1/l", kind=tarfile.SYMTYPE, linkname="/etc/passwd")), "is a symbolic link"),
    "hard link": (tar_of(member("a", b"x"), member("l", kind=tarfile.LNKTYPE, linkname="a")), "is a hard link"),
    "device": (tar_of(member("step_1/d", kind=tarfile.CHRTYPE)), "is a device"),
    "named pipe": (tar_of(member("step_1/p", kind=tarfile.FIFOTYPE)), "is a named pipe"),
    "dots": (tar_of(member("step_1/../../x", b"x")), "leads out of the pack"),
    "absolute": (tar_of(member("/etc/x", b"x")), "is absolute"),
    "twice": (tar_of(member("a", b"x"), member("./a", b"y")), "is there twice"),
    "sparse": (tar_of(member("a", b"x", pax_headers={"GNU.sparse.map": "0,1"})), "could change what is read"),
    "cut": (tar_of(member("a", bytes(5000)))[:3000], "reaches beyond the end"),
    "continued": (tar_of(member("a", b"x")) + b"more" * 2560, "bytes follow the end"),
    "escapes": (tar_of(member("\x1b[2J/../[red]", b"x")), "leads out of the pack"),
}


@pytest.mark.parametrize("form", [seekable, plain])
@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_hostile_tars_are_invalid_with_the_place(tmp_path, name, form) -> None:
    """In a pack with a seek table and in one without: 13, what is wrong and at which byte, and no escape is printed."""
    pack = tmp_path / "p.tar.zst"
    pack.write_bytes(form(HOSTILE[name][0]))
    ran = run("validate", str(pack), "--level", "quick")

    assert 13 == ran.status
    assert HOSTILE[name][1] in ran.stdout
    assert "(byte " in ran.stdout
    assert "\x1b" not in ran.stdout + ran.stderr


def bomb(name: str) -> bytes:
    """A file that is small and asks for much."""
    header = member_headers("step_1/a", 0)
    blocks = (member_headers(f"{number:06x}/{'n' * 90}", 0) for number in range(170_000))
    match name:
        case "declared":
            return plain(bytes(300 << 20), level=1)
        case "undeclared":
            return zstandard.ZstdCompressor(level=1, write_content_size=False).compress(bytes(300 << 20))
        case "names":
            return seekable(b"".join(islice(blocks, 4000)) * 200 + bytes(10_240))
        case "distinct names":
            return seekable(b"".join(blocks) + bytes(10_240))
        case _:
            return seekable(header[:124] + b"77777777777\0" + header[136:] + bytes(64 << 20))


MEASURED = """
from ckptctl.__main__ import main
import sys
try:
    main()
finally:
    peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(int(peak.split()[1]) // 1024, file=sys.stderr)
"""


@pytest.mark.long
@pytest.mark.parametrize("name", ["declared", "undeclared", "names", "distinct names", "one huge member"])
def test_bombs_stay_small_in_memory(tmp_path, name) -> None:
    """A process of its own judges it within 600 MB, and ends with a verdict."""
    pack = tmp_path / "bomb.tar.zst"
    pack.write_bytes(bomb(name))
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, "validate", str(pack), "--level", "full"],
        cwd=REPOSITORY,
        env=clean_environment(),
        capture_output=True,
        timeout=250,
        check=False,
        text=True,
    )

    assert done.returncode in {3, 11, 13}, done.stderr
    assert int(done.stderr.split()[-1]) < MEGABYTES, done.stderr
