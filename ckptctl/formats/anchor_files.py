"""An anchor's small files: `training_info.json` of a step (snapshot-layout section 11), `bootstrap/manifest.json` (section 4).

Decides their shape. Whether they belong to the snapshots below them is left to the rules.
"""

from __future__ import annotations

import json
from typing import Any

from ckptctl.domain.binding import BootstrapManifest, TrainingInfo
from ckptctl.domain.canonical import pretty2_nl
from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS, Limits
from ckptctl.formats.canonical_json import decode_document, decode_value, load_object


def decode_training_info(data: bytes, limits: Limits = DEFAULT_LIMITS) -> TrainingInfo:
    """What the trainer says of a step. Absent fields have their defaults, unknown ones are kept aside. Raises DefectError."""
    return decode_document(data, TrainingInfo, limits)


def encode_training_info(info: TrainingInfo) -> bytes:
    """The bytes of `training_info.json`: one line, in the order of the fields."""
    return json.dumps(info.model_dump(mode="json"), allow_nan=False).encode()


def decode_bootstrap(data: bytes, limits: Limits = DEFAULT_LIMITS) -> BootstrapManifest:
    """The bootstrap anchor's manifest. Schemas 1 and 2 are known by the missing identity; what they have instead is not read.

    Raises:
        DefectError: also when base step or trainer version are not 0, as every bootstrap anchor's are.
    """
    raw = load_object(data, limits)
    if "bootstrap_identity" not in raw:
        raw = {key: value for key, value in raw.items() if key in BootstrapManifest.model_fields}
    found = decode_value(raw, BootstrapManifest)
    defects = [
        Defect(f"`{key}` must be 0 in a bootstrap anchor, found {value}", key, "0", str(value))
        for key, value in (("base_train_step", found.base_train_step), ("trainer_version", found.trainer_version))
        if value != 0
    ]
    if defects:
        raise DefectError(*defects)
    return found


def encode_bootstrap(manifest: BootstrapManifest) -> bytes:
    """The bytes of `bootstrap/manifest.json` (form pretty2-nl)."""
    document: dict[str, Any] = manifest.model_dump(mode="json")
    if manifest.bootstrap_identity is None:
        del document["bootstrap_identity"]
    return pretty2_nl(document)
