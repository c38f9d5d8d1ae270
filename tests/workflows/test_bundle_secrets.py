"""A support bundle may be attached to a public bug report: secrets of every kind, planted in every artifact, are in no encoding in it.

`test_inspect_bundle` replaces every text of every document; here the secrets look like real ones and lie where real ones would: in the
configuration, in records and sessions, in archives and pickles, in tensors, in names of files and servers, in journals and control
files, in the path of the run, in the environment of the process. What is searched is what anybody can get out of the file: its bytes,
and its content decompressed; for each secret, each part of it that is long enough to tell, and each number, in many encodings.
"""

from __future__ import annotations

import base64
import codecs
import hashlib
import html
import io
import json
import os
import re
import socket
import struct
import urllib.parse
import zipfile
from pathlib import Path

import blake3
import pytest

from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.rows import LineageRow
from ckptctl.domain.source import BytesSource
from ckptctl.formats.zstd_frames import open_content
from tests.builders import a_run_files, a_world, write_tree
from tests.command_line import run
from tests.runs import offline_world
from tests.world import (
    AGENT,
    MODEL,
    SPARE,
    STAGED,
    TOOLS,
    AgentContent,
    ModelContent,
    a_call,
    a_config,
    a_group,
    a_ledger,
    a_model,
    a_pending_record,
    a_receipt,
    a_record,
    a_session,
    an_attempt,
)

SNAPSHOT = "step_3/rollout_snapshots/snapshot_000002"
SECRETS = {
    "control token": "ngctl-7Qm2xV9rT4kLp8Zs",
    "api key": "sk-proj-Hq81mZx0LrWv63TnYbKe",
    "hub token": "hf_QwErTyUiOpAsDfGhJkLzXcVbNm",
    "cloud key": "AKIAZ7Q2M4X9TESTKEY1",
    "password in a url": "p4ssw0rd-Tulpe-77",
    "host": "gpu-node-17.cluster.corp.example",
    "user": "alice.weidenmueller",
    "prompt": "What is the password of the vault in Zuerich?",
    "tool argument": "DROP TABLE salaries_2031",
    "tool result": "IBAN CH93 0076 2011 6238 5295 7",
    "answer": "The launch codes are kumquat-zebra-42",
    "cookie": "sessionid=9f8e7d6c5b4a39281706",
    "rollout": "customer-Oesterreich-4711_g0",
    "dataset": "s3://private-bucket-xyz/medical-records.jsonl",
    "reward note": "judge-says-Frau-Schneider-failed",
}
URL = f"https://{SECRETS['user']}:{SECRETS['password in a url']}@{SECRETS['host']}:8443/v1"
TOKEN_IDS = (7_310_421, 7_310_422, 7_310_423, 7_310_424)
PIECE = 10
"""A part of a secret of so many characters tells something; shorter ones may be words of the format."""


def rollout_group(name: str):
    """An unfinished group with secrets in each field that takes one."""
    return a_group(
        name,
        "19",
        [[an_attempt(0)]],
        task_source=SECRETS["dataset"],
        resolved_agent_name=None,
        admission_id=SECRETS["user"],
    )


def planted_world():
    """A valid world whose records, sessions, ledger, lineage, rows and configuration hold secrets."""
    record = a_record(
        output_items=[
            {"type": "message", "role": "user", "content": SECRETS["prompt"]},
            {"type": "function_call", "arguments": json.dumps({"query": SECRETS["tool argument"]})},
            {"type": "function_call_output", "output": SECRETS["tool result"]},
        ],
        agent_state={"url": URL, "api_key": SECRETS["api key"]},
        usage={"note": SECRETS["answer"]},
    )
    pending = a_pending_record()
    pending = pending.model_copy(
        update={
            "pending_model": pending.pending_model.model_copy(
                update={
                    "response": {"output": SECRETS["answer"], "token_ids": list(TOKEN_IDS)},
                    "model_server_cookies": {"cookie": SECRETS["cookie"]},
                }
            )
        }
    )
    receipt = a_receipt(SECRETS["reward note"]).model_copy(
        update={
            "headers": [["set-cookie", SECRETS["cookie"]]],
            "body_base64": base64.b64encode(SECRETS["tool result"].encode()).decode(),
        }
    )
    session = a_session(
        state={"rows": [SECRETS["tool result"]], "key": SECRETS["cloud key"]}, mutation_receipts=[receipt]
    )
    custody = dict(a_model().custody)
    custody["g8_g0"] = (*custody["g8_g0"], LineageRow(model_call_id=SECRETS["user"], failure_reason=URL))
    config = a_config()
    config["data"]["train"]["dataset_name"] = SECRETS["dataset"]
    config["ckptctl"] = {"controller": {"url": URL}, "token": SECRETS["control token"]}
    config["env"] = {
        "HF_TOKEN": SECRETS["hub token"],
        "OPENAI_API_KEY": SECRETS["api key"],
        "home": f"/home/{SECRETS['user']}",
    }
    ledger = a_ledger()
    group = rollout_group(SECRETS["rollout"].removesuffix("_g0"))
    return a_world(
        agents={AGENT: AgentContent((record, pending)), SPARE: AgentContent()},
        models={MODEL: ModelContent(**{**vars(a_model()), "custody": custody})},
        resources={TOOLS: (session,), SECRETS["host"]: ()},
        ledger=ledger.model_copy(update={"groups": [*ledger.groups, group]}),
        staged=(*STAGED, a_call(SECRETS["rollout"], SECRETS["user"], TOKEN_IDS)),
        config=config,
        anchor_config=config,
    )


def a_zip(*texts: str) -> bytes:
    """A torch-like archive whose pickle holds texts."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02]" + b"".join(f"X{text}".encode() for text in texts) + b".")
    return data.getvalue()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> tuple[Path, bytes]:
    """The run with its secrets, and its bundle, made by the command line."""
    base = tmp_path_factory.mktemp("x") / "home" / SECRETS["user"] / SECRETS["host"]
    root = write_tree(base / "run", a_run_files(planted_world()))
    snapshot = root / SNAPSHOT
    (snapshot / "replacement_reserve.pt").write_bytes(a_zip(SECRETS["prompt"], URL))
    (snapshot / "train_dataloader.pt").write_bytes(a_zip(SECRETS["dataset"], SECRETS["prompt"]))
    (snapshot / f"core.{SECRETS['host']}").write_text(json.dumps(SECRETS))
    (snapshot / SECRETS["rollout"]).mkdir()
    (snapshot / "resources" / f"{SECRETS['api key']}.json").write_text(SECRETS["prompt"])
    (root / "step_3" / f"{SECRETS['user']}.log").write_text(URL)
    world = offline_world(root)
    facts = {
        "schema_version": 1,
        "tool_version": "1",
        "reason": URL,
        "pin": SECRETS["rollout"],
        "going": [{"path": f"/home/{SECRETS['user']}"}],
    }
    writer = world.journal.begin("gc", facts)
    writer.append(
        {"event": "failure", "step": "save", "code": SECRETS["api key"], "message": SECRETS["prompt"]}, sync=True
    )
    writer.append({"event": "finish", "outcome": SECRETS["host"], "token": SECRETS["control token"]}, sync=True)
    (root / ".ckptctl" / "pins").mkdir()
    (root / ".ckptctl" / "pins" / "x.json").write_text(json.dumps({"reason": SECRETS["user"]}))
    (root / ".ckptctl" / "lock").write_text(json.dumps({"host": SECRETS["host"], "nonce": SECRETS["control token"]}))
    environment = {"NEMO_GYM_CHECKPOINT_CONTROL_TOKEN": SECRETS["control token"], "HF_TOKEN": SECRETS["hub token"]}
    file = base / "bundle.tar.zst"
    ran = run("inspect", str(snapshot), "--bundle", str(file), folder=base, environment=environment)
    assert file.exists(), ran.stderr
    return root, file.read_bytes()


def content(data: bytes) -> bytes:
    """What the bundle decompresses to: the tar with its headers."""
    opened = open_content(BytesSource(data), DEFAULT_LIMITS)
    return opened.read_at(0, opened.size_bytes)


def encodings(text: str) -> dict[str, bytes]:
    """A text in every form in which it might slip through."""
    raw = text.encode()
    escapes = "".join(f"\\u{ord(character):04x}" for character in text)
    found = {
        "raw": raw,
        "JSON": json.dumps(text)[1:-1].encode(),
        "JSON in JSON": json.dumps(json.dumps(text))[3:-3].encode(),
        "escapes": escapes.encode(),
        "escapes in capitals": escapes.upper().replace("\\U", "\\u").encode(),
        "bytes as escapes": "".join(f"\\x{byte:02x}" for byte in raw).encode(),
        "reversed escapes": escapes[::-1].encode(),
        "HTML": html.escape(text).encode(),
        "percent": urllib.parse.quote(text, safe="").encode(),
        "hex": raw.hex().encode(),
        "hex in capitals": raw.hex().upper().encode(),
        "hex with colons": raw.hex(":").encode(),
        "reversed": raw[::-1],
        "reversed hex": raw.hex()[::-1].encode(),
        "rot13": codecs.encode(text, "rot13").encode(),
        "UTF-16": text.encode("utf-16-le"),
        "UTF-16, big": text.encode("utf-16-be"),
        "base32": base64.b32encode(raw).rstrip(b"=")[:-2],
        "base85": base64.b85encode(raw),
    }
    for shift in range(3):
        for name, encode in (("base64", base64.b64encode), ("base64 for urls", base64.urlsafe_b64encode)):
            found[f"{name}, {shift} bytes later"] = encode(bytes(shift) + raw)[4 if shift else 0 : -4]
        found[f"reversed base64, {shift}"] = base64.b64encode(bytes(shift) + raw)[4 if shift else 0 : -4][::-1]
    return found


def digests(text: str) -> dict[str, bytes]:
    """A digest tells whoever can guess the text: half of one is too much."""
    raw = text.encode()
    found = {name: hashlib.new(name, raw).hexdigest() for name in ("sha256", "md5", "sha1", "sha512")}
    return {name: value[:16].encode() for name, value in {**found, "blake3": blake3.blake3(raw).hexdigest()}.items()}


def test_the_secrets_are_in_the_run(bundle) -> None:
    """Each lies in its files, in clear; else its absence from the bundle would prove nothing."""
    root, _ = bundle
    files = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    lies_in = {name: [path for path, data in files.items() if text.encode() in data] for name, text in SECRETS.items()}
    suffixes = {path.suffix for paths in lies_in.values() for path in paths}

    assert [] == [name for name, paths in lies_in.items() if not paths]
    assert {".json", ".jsonl", ".yaml", ".tar", ".pt", ".pkl"} <= suffixes
    assert any(struct.pack("<q", TOKEN_IDS[0]) in data for data in files.values())


@pytest.mark.parametrize("name", SECRETS)
def test_no_secret_in_any_encoding(bundle, name) -> None:
    """Nor any part of one, neither in the file as it lies there nor in what it decompresses to; nor a digest of one."""
    _, data = bundle
    whole, text = content(data), SECRETS[name]
    parts = {text[place : place + PIECE] for place in range(len(text) - PIECE + 1)}
    forms = {**encodings(text), **digests(text), **{f"part {part}": part.encode() for part in parts}}
    lower = whole.lower()

    assert [] == [form for form, encoded in forms.items() if encoded in whole or encoded in data]
    assert [] == [part for part in parts if part.lower().encode() in lower or part.lower()[::-1].encode() in lower]


def test_no_token_ids(bundle) -> None:
    """Neither as text nor as the bytes of a tensor."""
    _, data = bundle
    whole = content(data)
    forms = [
        form
        for number in TOKEN_IDS
        for form in (
            str(number).encode(),
            f"{number:x}".encode(),
            struct.pack("<q", number),
            struct.pack("<i", number),
            struct.pack("<f", number),
        )
    ]
    forms.append(base64.b64encode(struct.pack(f"<{len(TOKEN_IDS)}q", *TOKEN_IDS))[:-4])

    assert [] == [form for form in forms if form in whole]


def test_nothing_of_this_machine(bundle) -> None:
    """No host name, user, home or working directory, in the members and in the headers of the archive; no time but its own."""
    root, data = bundle
    whole = content(data)
    here = {str(root), str(root.parent), str(Path.cwd()), os.environ["HOME"], str(Path.home())}
    names = {socket.gethostname(), os.environ.get("USER", ""), os.environ.get("LOGNAME", "")} - {
        "",
        "root",
        "localhost",
    }
    owners = {
        (
            whole[place + 108 : place + 116],
            whole[place + 116 : place + 124],
            whole[place + 265 : place + 329].strip(b"\0"),
        )
        for place in (found.start() - 257 for found in re.finditer(b"ustar", whole))
    }

    assert [] == [text for text in here | names if len(text) > 3 and text.encode() in whole]
    assert {(b"0000000\0", b"0000000\0", b"")} >= owners
