"""The run configuration file: YAML of NeMo-RL's own sections plus ours -> `domain.config.RunConfig`.

Strict for the section `ckptctl`, lenient for keys of the others that we do not know. Values that rule a command out
are found by `planning.config_checks`.
"""

from __future__ import annotations

from pydantic import ValidationError

from ckptctl.domain.config import RunConfig, RunSections
from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import Limits
from ckptctl.formats.config_file import decode_yaml
from ckptctl.formats.document_defects import document_defects


def decode_run_config(data: bytes, path: str, working_directory: str, limits: Limits) -> RunConfig:
    """Decode a configuration file; a relative checkpoint directory is taken from `working_directory`, as NeMo-RL takes it.

    Raises:
        DefectError: no plain YAML, or a value of the wrong type; `location` is the dotted key path.
    """
    raw = decode_yaml(data, limits)
    try:
        sections = RunSections.model_validate(raw)
    except ValidationError as error:
        raise DefectError(*document_defects(error, raw)) from None
    return RunConfig(path, raw, sections, _absolute(sections.checkpointing.checkpoint_dir or "", working_directory))


def _absolute(path: str, working_directory: str) -> str:
    """An absolute path without `.` segments; `..` stays, since only the file system knows what it means after a link."""
    if not path:
        return ""
    joined = path if path.startswith("/") else f"{working_directory}/{path}"
    return "/" + "/".join(part for part in joined.split("/") if part not in ("", "."))
