"""Where the frozen samples come from: checkpoint directories built from the formats' own writers, some damaged on purpose.

`tests/samples/` holds what this module yields, byte for byte; nobody edits it, and a sample never changes: a new format gets a new
folder. Names with control characters are not committed; `tests/cli/hostile.py` makes those when a test runs.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ckptctl.domain.checksums import Checksums, FileChecksum
from ckptctl.domain.digest import blake3_hex
from ckptctl.domain.ids import CHECKSUMS_FILE
from ckptctl.formats.checksums_file import encode_checksums
from ckptctl.formats.config_file import encode_yaml
from tests.artifacts import anchor_files
from tests.builders import a_bootstrap_world, a_run_files, a_snapshot_files, a_world
from tests.world import World

Files = dict[str, bytes]
OLDER_ID = "rollout-step-3-snapshot-1-00112233445566778899aabbccddeeff"
STATES = b"\x8c\x07_states\x94"
"""In a controller's pickle: the name before what its sampler remembers, which our writers leave empty."""
PICKLE_THAT_CALLS = b"cos\nsystem\n(S'touch /tmp/ckptctl-was-fooled'\ntR."
"""A classic: whoever unpickles it runs a shell command."""


def snapshot_folder(world: World) -> str:
    """Where a world's snapshot lies in its checkpoint directory."""
    return f"{world.anchor}/rollout_snapshots/{world.name}"


def run_config(name: str, world: World) -> bytes:
    """The configuration of the run that a sample belongs to; paths as seen from `tests/samples`."""
    checkpointing = {**world.config["checkpointing"], "checkpoint_dir": name}
    return encode_yaml(
        {**world.config, "checkpointing": checkpointing, "ckptctl": {"controller": {"url": "http://127.0.0.1:9"}}}
    )


def runnable(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with all that a restore asks of the run."""
    return {
        **config,
        "async_rl": {"rollout_failure": {"nemo_gym": {"max_row_attempts": 1}}},
        "checkpointing": {**config["checkpointing"], "save_data_plane": True},
        "rollout_checkpointing": {**config["rollout_checkpointing"], "snapshot_attempt_interval_s": 120},
    }


def third_step(**changes: Any) -> World:
    """Rollouts in the middle of their turns, with Gym state."""
    config = runnable(a_world().config)
    return a_world(config=config, anchor_config=config, **changes)


def before_the_first_step(**changes: Any) -> World:
    """Nothing unfinished, no Gym state: small."""
    return a_bootstrap_world(config=runnable(a_bootstrap_world().config), **changes)


def sound(name: str, *worlds: World) -> Files:
    """A checkpoint directory, and beside it the configuration of its run."""
    return {
        **{f"{name}/{path}": data for path, data in a_run_files(*worlds).items()},
        f"{name}.yaml": run_config(name, worlds[0]),
    }


def turn() -> Files:
    """Schema 4 with Gym state: continuations, sessions, sealed siblings, staged rows."""
    return sound("turn", third_step())


def bootstrap() -> Files:
    """Schema 4 without Gym state, before the first trainer step."""
    return sound("bootstrap-run", before_the_first_step())


def schema_3() -> Files:
    """Schema 3, as builds without participants write it."""
    return sound("schema-3", before_the_first_step(schema_version=3, name="snapshot_000001"))


def other_schemas() -> Files:
    """Two snapshots that nobody can use any more, or yet."""
    world = before_the_first_step()
    files = {f"other-schemas/{world.anchor}/{name}": data for name, data in anchor_files(world).items()}
    manifest = a_snapshot_files(world)["manifest.json"]
    for number, schema in (1, 1), (2, 2), (3, 7):
        folder = f"other-schemas/{world.anchor}/rollout_snapshots/snapshot_{number:06d}"
        files[f"{folder}/manifest.json"] = manifest.replace(b'"schema_version": 4', b'"schema_version": %d' % schema)
    return files


def two_generations() -> Files:
    """The newest snapshot is damaged (one byte of a session), the one before it is sound."""
    newest = third_step()
    older = replace(newest, name="snapshot_000001", checkpoint_id=OLDER_ID)
    files = sound("two-generations", newest, older)
    return changed(files, f"two-generations/{snapshot_folder(newest)}/resources/tools/g7_g0.a1.json", flip)


def hiding(controller: bytes) -> bytes:
    """The pickle of a controller (one frame, which is left out) with another one as a tensor's stream in its sampler's state."""
    stream = b"B" + len(PICKLE_THAT_CALLS).to_bytes(4, "little") + PICKLE_THAT_CALLS
    call = b"ctorch.storage\n_load_from_bytes\n" + stream + b"\x85R"
    return (controller[:2] + controller[11:]).replace(STATES + b"}", STATES + call)


def damaged() -> Files:
    """One damage each, in small snapshots: torn ledger, manifest with a key twice, a file too many, a missing file, a call in a
    pickle, and one in a pickle that hides in another.
    """
    files: Files = {}
    world = before_the_first_step()
    folder = snapshot_folder(world)
    damages: Mapping[str, Callable[[Files, str], Files]] = {
        "torn-ledger": lambda run, top: changed(run, f"{top}/{folder}/rollout_recovery.pt", lambda data: data[:-20]),
        "key-twice": lambda run, top: changed(
            run,
            f"{top}/{folder}/manifest.json",
            lambda data: data.replace(b"{\n", b'{\n  "base_train_step": 0,\n', 1),
        ),
        "stranger": lambda run, top: {**run, f"{top}/{folder}/[red]unsaid file.bin": b"\0"},
        "no-replay": lambda run, top: {
            name: data for name, data in run.items() if name != f"{top}/{folder}/replay_buffer_metadata.pt"
        },
        "calling-pickle": lambda run, top: changed(
            run, f"{top}/{folder}/data_plane/controller_state.pkl", lambda _: PICKLE_THAT_CALLS
        ),
        "hidden-pickle": lambda run, top: changed(run, f"{top}/{folder}/data_plane/controller_state.pkl", hiding),
    }
    for name, damage in damages.items():
        run = {f"damaged/{name}/{path}": data for path, data in a_run_files(world).items()}
        files.update(damage(run, f"damaged/{name}"))
    return files


def leftovers() -> Files:
    """A sound snapshot, one that was staged and never published, and one that somebody began to delete."""
    world = before_the_first_step()
    files = sound("leftovers", world)
    folder = f"leftovers/{world.anchor}/rollout_snapshots"
    staged = a_snapshot_files(world)
    files.update({f"{folder}/tmp_snapshot_000003/{name}": staged[name] for name in ("manifest.json", "config.yaml")})
    files[f"{folder}/trash_snapshot_000001/manifest.json"] = staged["manifest.json"]
    return files


def published() -> Files:
    """Two snapshots as ckptctl publishes them, with a checksum file; one byte of the newer one's configuration changed afterwards."""
    worlds = (before_the_first_step(name="snapshot_000001"), before_the_first_step(name="snapshot_000002"))
    files = sound("published", *worlds)
    for world in worlds:
        folder = f"published/{snapshot_folder(world)}"
        files[f"{folder}/{CHECKSUMS_FILE}"] = checksum_file(a_snapshot_files(world))
    path = f"published/{snapshot_folder(worlds[1])}/config.yaml"
    return changed(files, path, lambda data: data.replace(b"keep_latest_k: 2", b"keep_latest_k: 3"))


def checksum_file(files: Files) -> bytes:
    """The checksum file of a snapshot without Gym state."""
    return encode_checksums(
        Checksums(
            schema_version=1,
            tool_version="0.1.0",
            checkpoint_id=None,
            created_at="2026-11-30T06:57:12Z",
            files={path: FileChecksum(blake3=blake3_hex(data), bytes=len(data)) for path, data in files.items()},
        )
    )


def changed(files: Files, name: str, change: Callable[[bytes], bytes]) -> Files:
    """The files with one of them changed."""
    return {**files, name: change(files[name])}


def flip(data: bytes) -> bytes:
    """One letter in the middle is another one."""
    at = data.index(b"g7_g0")
    return data[:at] + b"h" + data[at + 1 :]


SAMPLES: tuple[Callable[[], Files], ...] = (
    turn,
    bootstrap,
    schema_3,
    other_schemas,
    two_generations,
    damaged,
    leftovers,
    published,
)


def sample_files() -> Files:
    """Every file of `tests/samples`, by path inside it."""
    files: Files = {}
    for build in SAMPLES:
        made = build()
        assert not files.keys() & made.keys(), f"{build.__name__} writes where another sample lies"
        files.update(made)
    return files
