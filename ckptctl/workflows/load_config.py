"""Read the run configuration and refuse what rules the command out: each a ConfigError that names file, key and reason."""

from __future__ import annotations

from ckptctl.domain.config import OwnSection, Purpose, RunConfig
from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS, Limits
from ckptctl.errors import ConfigError, NothingThereError, StorageError, UsageError
from ckptctl.formats.run_config import decode_run_config
from ckptctl.planning.config_checks import config_problems
from ckptctl.ports import SnapshotReader
from ckptctl.workflows.own_folders import demand_real_folders


def load_config(
    reader: SnapshotReader,
    path: str | None,
    working_directory: str,
    *,
    real_path: str | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> RunConfig:
    """Read one configuration file. `real_path`: where `path` leads; a configuration may be a link.

    Raises:
        UsageError: none was named.
        ConfigError: it is not there, or it is not a configuration.
    """
    if not path:
        raise UsageError(
            "this command needs a run configuration",
            hint="name a file with `--config` or the environment variable `CKPTCTL_CONFIG`",
        )
    try:
        data = reader.read_bytes(real_path or path, limits.yaml_bytes)
    except FileNotFoundError:
        raise ConfigError(
            path=path, location="", problem="does not exist", hint="check `--config` or `CKPTCTL_CONFIG`"
        ) from None
    except StorageError as error:
        problem = f"cannot be read: {error.detail}"
        hint = "name a regular file, YAML, that you may read, with `--config` or `CKPTCTL_CONFIG`"
        raise ConfigError(path=path, location="", problem=problem, hint=hint) from error
    try:
        return decode_run_config(data, path, working_directory, limits)
    except DefectError as error:
        defect = error.defects[0]
        more = f" (and {len(error.defects) - 1} more)" if len(error.defects) > 1 else ""
        problem = f"is wrong: {defect.message}{more}"
        raise ConfigError(
            path=path, location="", problem=problem, hint="the README has an example that works"
        ) from None


def require_sound(config: RunConfig, purpose: Purpose) -> None:
    """Raise ConfigError for the first value that rules `purpose` out; the hint tells of further ones."""
    problems = config_problems(config, purpose)
    if problems:
        first, *others = problems
        hint = first.hint
        if others:
            hint += "; also: " + "; ".join(f"`{item.location}` {item.problem}" for item in others)
        raise ConfigError(path=config.path, location=first.location, problem=first.problem, hint=hint)


def require_checkpoint_dir(reader: SnapshotReader, config: RunConfig) -> None:
    """The checkpoint directory is there, and what a command writes below it goes nowhere else.

    Raises:
        NothingThereError: there is none: a path with a typing error must not be created.
        ConfigError: it is no directory. RefusedError: a link lies where a folder must be.
    """
    path = config.checkpoint_dir
    kind = reader.kind_of(path)
    if kind is None:
        raise NothingThereError(
            f"the checkpoint directory `{path}` does not exist",
            hint="check `checkpointing.checkpoint_dir`, and that its file system is mounted here",
        )
    leads_to = reader.kind_of(f"{path}/.") if kind == "symlink" else kind
    if leads_to != "directory":
        what = "a symbolic link that leads to no directory" if kind == "symlink" else f"a {kind}, no directory"
        raise ConfigError(
            path=config.path,
            location="checkpointing.checkpoint_dir",
            problem=f"is `{path}`: {what}",
            hint="name the directory that holds the anchors (`step_N`, `bootstrap`)",
        )
    demand_real_folders(reader, path)


def require_own(config: RunConfig) -> OwnSection:
    """Our own section. Raises ConfigError when the file has none."""
    own = config.sections.ckptctl
    if own is None:
        raise ConfigError(
            path=config.path,
            location="ckptctl",
            problem="is missing: it says where the controller and the participants listen",
            hint="the README has an example that works",
        )
    return own
