"""A support bundle is safe to publish: secrets and token data planted everywhere are in no form in what it decompresses to."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import tarfile
from io import BytesIO

import pytest
import yaml

from ckptctl.adapters.local_store import LocalStore
from ckptctl.domain.harmless import FILE_NAMES, KEYS, NUMBERED_FILE, WORDS
from ckptctl.domain.ledger import Ledger
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.replay import ReplayMetadata
from ckptctl.domain.source import BytesSource
from ckptctl.errors import StorageError, UsageError
from ckptctl.formats.zstd_frames import open_content
from ckptctl.rules import ALL_RULES
from ckptctl.workflows.inspect_bundle import BundleRequest, write_bundle
from tests.builders import a_run_files, a_world, write_tree
from tests.command_line import run
from tests.fakes.memory_store import MemoryStore
from tests.goldens import SAMPLES
from tests.runs import a_run, damage, offline_world
from tests.world import a_ledger, a_replay

SNAPSHOT = "step_3/rollout_snapshots/snapshot_000002"
MARK = "PLANT"
TOKEN_IDS = [7_310_421, 7_310_422, 7_310_423]
LOGPROBS = [-0.731042137, -0.731042239]


def bundle_of(root, folder, snapshot=SNAPSHOT, **request) -> dict[str, str]:
    """Write the bundle; its members as text."""
    path = folder / "bundle.tar.zst"
    size = write_bundle(
        offline_world(root),
        LocalStore(str(folder)),
        BundleRequest(str(root / snapshot), str(folder), path.name, {"python": "3"}, **request),
    )
    assert size == path.stat().st_size
    return members(path.read_bytes())


def members(data: bytes) -> dict[str, str]:
    content = open_content(BytesSource(data), DEFAULT_LIMITS)
    with tarfile.open(fileobj=BytesIO(content.read_at(0, content.size_bytes))) as archive:
        return {info.name: archive.extractfile(info).read().decode() for info in archive.getmembers()}


class Planter:
    """Replaces every text by one that can be recognised, and keeps its form where a form is demanded."""

    def __init__(self) -> None:
        self.planted: list[str] = []

    def text(self, old: str) -> str:
        number = len(self.planted)
        if re.fullmatch(r"[0-9a-f]{64}", old):
            new = f"{MARK}-{number:06d}-digest".encode().hex().ljust(64, "a")[:64]
        elif "/" in old:
            new = f"{MARK}{number:06d}/{MARK}secret{number:06d}"
        else:
            new = f'{MARK}{number:06d}.hunter2-é"{{}}' if number % 3 == 0 else f"{MARK}{number:06d}-key"
        self.planted.append(new)
        return new

    def identifier(self, old: str) -> str:
        """A text that keeps the form of an id or digest."""
        if re.fullmatch(r"[0-9a-f]{64}", old):
            return self.text(old)
        self.planted.append(f"{MARK}{len(self.planted):06d}")
        return self.planted[-1]

    def tree(self, value, text=None, keep=frozenset()):
        """A value with all its texts planted, and with token data and secrets beside its fields."""
        text = text or self.text
        if isinstance(value, str):
            return value if value in keep else text(value)
        if isinstance(value, list):
            return [self.tree(item, text, keep) for item in value]
        if isinstance(value, dict):
            return {key: self.tree(item, text, keep) for key, item in value.items()}
        return value

    def salted(self, value):
        """The same with fields that nobody knows, under names that are secrets themselves."""
        if isinstance(value, list):
            return [self.salted(item) for item in value]
        if isinstance(value, dict):
            more = {
                self.text("key"): self.text("value"),
                "control_auth_token": self.text("token"),
                "HF_TOKEN": self.text("token"),
                "url": f"https://user:{self.text('password').replace('/', '')}@host/",
                "token_ids": TOKEN_IDS,
                "token_id": TOKEN_IDS[0],
                "logprobs": LOGPROBS,
                "reward": LOGPROBS[0],
                "prompt": self.text("prompt"),
            }
            return {**{key: self.salted(item) for key, item in value.items()}, **more}
        return value


def planted_run(root) -> Planter:
    """A run in which every text of every document is planted, in the pickles too, with stray names of files and journals."""
    planter = Planter()
    words = frozenset(
        {"generating", "sealed", "dispatched", "abandoned", "sibling", "prompt_group", "tq_checkpoint", "declared"}
    )
    ledger = planter.tree(a_ledger().model_dump(mode="json"), planter.identifier, words | {"admitted"})
    replay = planter.tree(a_replay().model_dump(mode="json"), planter.identifier, words)
    ledger["batch_shortfall"] = {int(key): value for key, value in ledger["batch_shortfall"].items()}
    for group in ledger["groups"]:
        group["phase"] = "admitted"
    world = a_world(ledger=Ledger.model_validate(ledger), replay=ReplayMetadata.model_validate(replay))
    write_tree(root, a_run_files(world))
    for path in sorted(root.rglob("*")):
        if path.suffix == ".json":
            path.write_text(json.dumps(planter.salted(planter.tree(json.loads(path.read_text())))))
        elif path.suffix == ".jsonl":
            lines = [planter.salted(planter.tree(json.loads(line))) for line in path.read_text().splitlines()]
            path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
        elif path.name == "config.yaml":
            path.write_text(
                yaml.safe_dump(planter.salted(planter.tree(yaml.safe_load(path.read_text()))), allow_unicode=True)
            )
    stray = root / SNAPSHOT / f"{planter.identifier('x')}.json"
    stray.write_text(planter.text("x"))
    (root / SNAPSHOT / planter.identifier("folder")).mkdir()
    return planter


def forms_of(secret: str) -> list[bytes]:
    """Every way in which a text may be hidden: raw, JSON-escaped, hex, base64 at any alignment, percent-encoded, reversed."""
    raw = secret.encode()
    encoded = [base64.b64encode(bytes(shift) + raw)[4 if shift else 0 : -4] for shift in range(3)]
    escaped = json.dumps(secret)[1:-1].encode()
    return [raw, escaped, raw.hex().encode(), raw.hex().upper().encode(), raw[::-1], *encoded]


def test_planted_secrets_and_token_data_are_in_no_form(tmp_path) -> None:
    """Every text, every foreign field, file names, journals, tokens and log-probabilities: nothing of it is left."""
    root = tmp_path / "run"
    planter = planted_run(root)
    writer = offline_world(root).journal.begin(
        "gc", {"schema_version": 1, "tool_version": planter.identifier("x"), "going": []}
    )
    writer.append(
        {"event": "intent", "step": planter.text("step"), "path": planter.text("a/b"), "token": planter.text("t")},
        sync=True,
    )
    found = bundle_of(root, tmp_path)
    whole = "".join(f"{name}\n{text}" for name, text in sorted(found.items())).encode()

    assert len(planter.planted) > 500
    assert MARK.encode() not in whole
    assert MARK.encode().hex().encode() not in whole
    for secret in planter.planted:
        assert not [form for form in forms_of(secret) if form in whole], secret
    for number in (*TOKEN_IDS, *LOGPROBS):
        assert str(number).encode() not in whole
    assert ["decoded", "decoded"] == [json.loads(found[name])["state"] for name in ("ledger.json", "replay.json")]
    assert json.loads(found["ledger.json"])["first"]
    assert 1 == len(json.loads(found["journals.json"]))
    assert 4 <= len(json.loads(found["documents.json"]))


def test_nothing_of_a_real_looking_snapshot_is_left(tmp_path) -> None:
    """Every text and number sequence that any artifact of a sound snapshot holds, records, sessions and tensors included."""
    root = a_run(tmp_path / "run", step_3=2)
    whole = "".join(bundle_of(root, tmp_path).values())
    own = "\n".join({*(rule.name for rule in ALL_RULES), *KEYS, *WORDS, *FILE_NAMES, "content"})
    texts = {text for path in sorted((root / "step_3").rglob("*")) if path.is_file() for text in texts_of(path)}
    secret = {text for text in texts if len(text) > 5 and text not in own and not NUMBERED_FILE.fullmatch(text)}

    assert 60 < len(secret)
    assert set() == {text for text in secret if text in whole}
    assert {name for name in os.listdir(root / SNAPSHOT / "agent") if name in whole} == set()


def texts_of(path) -> set[str]:
    """Every text leaf of a file that is JSON, JSON Lines, YAML, or a tar of those."""
    data = path.read_bytes()
    if path.suffix == ".tar":
        with tarfile.open(fileobj=BytesIO(data)) as archive:
            return {info.name for info in archive.getmembers()} | {
                text for info in archive.getmembers() for text in leaves(parsed(archive.extractfile(info).read()))
            }
    return set(leaves(yaml.safe_load(data))) if path.suffix == ".yaml" else set(leaves(parsed(data)))


def parsed(data: bytes):
    try:
        return (
            [json.loads(line) for line in data.splitlines() if line]
            if data.count(b"\n{") or data.endswith(b"}\n")
            else json.loads(data)
        )
    except ValueError:
        try:
            return json.loads(data)
        except ValueError:
            return []


def leaves(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item)
            yield str(key)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)


def test_what_support_needs_is_in_it(tmp_path) -> None:
    """Versions, verdict and rules, counts and states, the listing with sizes, the same text under the same number."""
    root = a_run(tmp_path / "run", step_3=2)
    damage(root, "step_3", 2)
    found = {name: json.loads(text) for name, text in bundle_of(root, tmp_path).items()}

    assert {
        "anchor.json",
        "ckptctl-bundle.json",
        "data-plane.json",
        "documents.json",
        "indexes.json",
        "journals.json",
    } < set(found)
    assert ("3", 1) == (found["ckptctl-bundle.json"]["python"], found["ckptctl-bundle.json"]["schema_version"])
    assert "invalid" == found["report.json"]["verdict"]
    assert {"MAN010"} <= {finding["rule"] for finding in found["report.json"]["findings"]}
    assert "damaged" == found["ledger.json"]["state"]
    ledger = next(entry for entry in found["tree.json"]["first"] if entry["path"] == "rollout_recovery.pt")
    assert (root / SNAPSHOT / "rollout_recovery.pt").stat().st_size == ledger["size_bytes"]
    manifest = next(item["content"] for item in found["documents.json"] if item["path"] == "manifest.json")
    names = {entry["participant"]["participant_name"] for entry in manifest["gym_checkpoint"]["participants"]}
    assert 4 < len(names)
    assert 3 == manifest["base_train_step"]
    listed = {item["path"] for item in found["indexes.json"]}
    assert listed <= {entry["path"] for entry in found["tree.json"]["first"]}


@pytest.mark.parametrize("sample", ["turn", "bootstrap-run", "schema-3", "other-schemas", "two-generations"])
def test_any_snapshot_can_be_bundled(tmp_path, sample) -> None:
    """Of other schemas, without Gym state, damaged; and the same snapshot at the same time gives the same bytes."""
    root = tmp_path / sample
    shutil.copytree(SAMPLES / sample, root)
    for number, path in enumerate(sorted(root.glob("*/rollout_snapshots/snapshot_*"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        found = bundle_of(root, folder, str(path.relative_to(root)))
        assert json.loads(found["report.json"])["kind"] == "snapshot"


def test_documents_that_are_none(tmp_path) -> None:
    """Broken JSON, other types, binary lines: said without a quotation."""
    root = a_run(tmp_path / "run", step_3=2)
    snapshot = root / SNAPSHOT
    (snapshot / "manifest.json").write_text(f'{{"a": "{MARK}"')
    (snapshot / "config.yaml").write_text(f"a: *{MARK}\n")
    index = next(snapshot.glob("agent/*/continuations.jsonl"))
    index.write_bytes(f'{MARK}\n"{MARK}"\n\xff\n'.encode("latin-1"))
    journal = root / ".ckptctl/journal"
    journal.mkdir(parents=True)
    (journal / "000001-gc.jsonl").write_text(f"{MARK}\n{MARK}\n")
    found = bundle_of(root, tmp_path)

    assert MARK not in "".join(found.values())
    assert "it cannot be decoded" in found["documents.json"]
    assert "bytes, no JSON" in found["indexes.json"]


def test_where_and_of_what(tmp_path) -> None:
    """One snapshot, a name for a bundle that is free; nothing half is left when it cannot be written."""
    root = a_run(tmp_path / "run", step_3=2)
    (tmp_path / "taken.tar.zst").write_bytes(b"mine")

    def ask(name="new.tar.zst", snapshot=SNAPSHOT, place=None):
        place = place or LocalStore(str(tmp_path))
        path = str(root / snapshot).rstrip("/")
        return write_bundle(offline_world(root), place, BundleRequest(path, str(tmp_path), name, {}))

    with pytest.raises(UsageError, match="is a `.tar.zst`"):
        ask("bundle.zip")
    with pytest.raises(UsageError, match="a bundle replaces nothing"):
        ask("taken.tar.zst")
    for other in ("step_3", "", f"{SNAPSHOT}/data_plane"):
        with pytest.raises(UsageError, match="is about one snapshot"):
            ask(snapshot=other)

    class Full(MemoryStore):
        def write_stream(self, path, pieces):
            raise StorageError(operation="write", path=path, detail="No space left on device")

    with pytest.raises(StorageError, match="No space left"):
        ask(place=Full())
    assert ["run", "taken.tar.zst"] == sorted(os.listdir(tmp_path))


def test_from_the_command_line(tmp_path) -> None:
    """The answer stays what it is; the bundle is told on stderr, and is no packed snapshot for `validate`."""
    root = a_run(tmp_path / "run", step_3=2)
    ran = run("inspect", str(root / SNAPSHOT), "--bundle", "b.tar.zst", folder=tmp_path)
    plain = run("inspect", str(root / SNAPSHOT))

    assert (0, re.sub(" [0-9.]+ m?s ago", "", plain.stdout)) == (ran.status, re.sub(" [0-9.]+ m?s ago", "", ran.stdout))
    assert "bundle: " in ran.stderr
    judged = run("validate", str(tmp_path / "b.tar.zst"))
    assert (2, True) == (judged.status, "is a support bundle, not a packed snapshot" in judged.stderr)
    assert 2 == run("inspect", str(root / SNAPSHOT), "--bundle", "b.tar.zst", folder=tmp_path).status
    assert 2 == run("inspect", "--bundle", "c.tar.zst", folder=tmp_path).status
    assert 2 == run("inspect", "--live", "--bundle", "c.tar.zst", folder=tmp_path).status
    assert 32 == run("inspect", str(root / SNAPSHOT), "--bundle", "gone/c.tar.zst", folder=tmp_path).status
    about = json.loads(members((tmp_path / "b.tar.zst").read_bytes())["ckptctl-bundle.json"])
    assert {"python", "system", "pydantic", "msgspec", "zstandard", "blake3", "tool_version"} <= set(about)
