"""Pins: small files in `.ckptctl/pins/` that keep one snapshot each, with the reason. Read by everything that deletes snapshots.

The name of the file says which snapshot it keeps, so a pin whose content cannot be read keeps it all the same. What a
pin means for a plan is `planning.gc`'s business.
"""

from __future__ import annotations

from shlex import quote

from ckptctl.domain.canonical import pretty2_nl
from ckptctl.domain.finding import DefectError
from ckptctl.domain.ids import snapshot_number
from ckptctl.domain.retention import PINS_FOLDER, Pin, is_anchor, snapshot_path
from ckptctl.domain.safe_text import safe
from ckptctl.errors import NothingThereError, StorageError
from ckptctl.formats.canonical_json import decode_document
from ckptctl.workflows.world import World

_SUFFIX = ".json"
_MAX_BYTES = 64 << 10
UNREADABLE = "(its pin cannot be read, which keeps it too)"


def load_pins(world: World, checkpoint_dir: str) -> dict[str, str]:
    """Path of every pinned snapshot, relative to the checkpoint directory, and why it is kept.

    Raises:
        StorageError: the folder cannot be listed; then nobody knows what is pinned.
    """
    folder = f"{checkpoint_dir}/{PINS_FOLDER}"
    try:
        entries = world.store.list_tree(folder, max_depth=1)
    except FileNotFoundError:
        return {}
    found = {path: entry.path for entry in entries if (path := _pinned_by(entry.path)) is not None}
    return {path: _reason(world, f"{folder}/{name}") for path, name in found.items()}


def write_pin(world: World, checkpoint_dir: str, path: str, reason: str) -> None:
    """Pin a snapshot, or give its pin another reason."""
    pin = Pin(snapshot=path, reason=reason, pinned_at=round(world.clock.now_s(), 3))
    world.store.make_directory(f"{checkpoint_dir}/{PINS_FOLDER}")
    world.store.write_file(_pin_file(checkpoint_dir, path), pretty2_nl(pin.model_dump(mode="json")))


def remove_pin(world: World, checkpoint_dir: str, path: str) -> None:
    """Unpin a snapshot. Raises NothingThereError when it is not pinned."""
    file = _pin_file(checkpoint_dir, path)
    if world.store.kind_of(file) is None:
        raise NothingThereError(f"`{path}` is not pinned", hint=pins_hint(checkpoint_dir))
    world.store.remove_tree(file)


def pins_hint(checkpoint_dir: str) -> str:
    """How to see what is pinned there."""
    return f"`ckptctl inspect {quote(safe(checkpoint_dir))}` shows what is pinned"


def _pin_file(checkpoint_dir: str, path: str) -> str:
    anchor, _, name = path.partition("/")
    return f"{checkpoint_dir}/{PINS_FOLDER}/{anchor}.{name.rpartition('/')[2]}{_SUFFIX}"


def _pinned_by(file_name: str) -> str | None:
    anchor, _, name = file_name.removesuffix(_SUFFIX).partition(".")
    is_pin = file_name.endswith(_SUFFIX) and is_anchor(anchor) and snapshot_number(name) is not None
    return snapshot_path(anchor, name) if is_pin else None


def _reason(world: World, file: str) -> str:
    try:
        return decode_document(world.store.read_bytes(file, _MAX_BYTES), Pin, world.limits).reason
    except (DefectError, StorageError, FileNotFoundError):
        return UNREADABLE
