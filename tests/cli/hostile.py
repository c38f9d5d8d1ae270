"""Checkpoint directories whose names and contents want to be more than data: escapes, markup, quotes, line ends, overlong names.

They are built when a test runs, because such names do not belong into anybody's clone.
"""

from pathlib import Path

from tests.builders import a_run_files, write_tree
from tests.sample_list import before_the_first_step, run_config, snapshot_folder, third_step

ESCAPE = "\x1b]0;owned\x07\x1b[2J"
NAMES = (
    f"{ESCAPE}gone",
    "[bold red]loud[link=https:]",
    'quote" \\ back',
    "line\nend",
    "\u202egpj.exe",
    "a" * 250,
    "delete \x7f",
    "no text \udcff\udcfe",
    "::error title=forged::owned",
    "##[error]forged",
)
RULER = "\x1b\x07\n\r\x7f\u202e"
"""What may never reach a terminal, line ends of the answer itself aside."""


def hostile_run(root: Path) -> Path:
    """A sound snapshot with files that do not belong, in a checkpoint directory with a name of that kind; its configuration beside it."""
    world = third_step()
    run = root / f"run {ESCAPE}[red]"
    files = a_run_files(world)
    folder = snapshot_folder(world)
    write_tree(run, {**files, **{f"{folder}/{name}": b"\0" for name in NAMES}})
    (root / "run.yaml").write_bytes(run_config(str(run), world))
    return run


def hostile_manifest(root: Path) -> Path:
    """A small checkpoint directory whose manifest has a key, and whose ledger file a content, of that kind."""
    world = before_the_first_step()
    files = a_run_files(world)
    manifest = f"{snapshot_folder(world)}/manifest.json"
    key = b'{\n  "\\u001b[31m[red]\\u202e": {"\\u0007": "\\u001b"},\n'
    files[manifest] = files[manifest].replace(b"{\n", key, 1)
    files[f"{snapshot_folder(world)}/rollout_recovery.pt"] = f"{ESCAPE}[bold]".encode() * 40
    return write_tree(root / "plain", files)
