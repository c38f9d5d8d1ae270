"""An anchor's own small files."""

import json

import pytest

from ckptctl.domain.binding import BootstrapManifest
from ckptctl.domain.finding import DefectError
from ckptctl.domain.fingerprint import bootstrap_fingerprint, bootstrap_identity
from ckptctl.formats.anchor_files import decode_bootstrap, decode_training_info, encode_bootstrap, encode_training_info


def a_bootstrap(**changes):
    identity = bootstrap_identity({"grpo": {"seed": 1}})
    fields = {
        "schema_version": 4,
        "base_train_step": 0,
        "trainer_version": 0,
        "bootstrap_fingerprint": bootstrap_fingerprint(identity),
        "bootstrap_identity": identity,
    }
    return BootstrapManifest(**{**fields, **changes})


def test_training_info_has_defaults_and_keeps_metrics_aside():
    """Only the step is needed; metrics of the trainer are no defect."""
    info = decode_training_info(b'{"current_step": 3, "train:loss": 0.5}')

    assert (3, 0, None, None) == (info.current_step, info.consumed_samples, info.trainer_version, info.sampler_name)
    assert info == decode_training_info(encode_training_info(info))


@pytest.mark.parametrize(
    "data", [b"{}", b'{"current_step": true}', b'{"current_step": 1.0}', b'{"current_step": -1}', b"[]"]
)
def test_training_info_needs_its_step(data):
    """A file that does not say which step it is of is damaged."""
    with pytest.raises(DefectError):
        decode_training_info(data)


@pytest.mark.parametrize(
    ("counter", "least"),
    [
        ("consumed_samples", 0),
        ("current_epoch", 0),
        ("total_steps", 0),
        ("total_valid_tokens", 0),
        ("trainer_version", 0),
        ("sampler_dispatch_index", -1),
    ],
)
def test_what_is_counted_is_not_negative(counter, least):
    """The cursor alone begins before the first."""
    assert least == getattr(decode_training_info(json.dumps({"current_step": 3, counter: least}).encode()), counter)
    with pytest.raises(DefectError) as damaged:
        decode_training_info(json.dumps({"current_step": 3, counter: least - 1}).encode())
    assert counter == damaged.value.defects[0].location


def test_bootstrap_manifest_reads_back():
    """The bootstrap manifest is pretty-printed with one final newline and read as it was."""
    data = encode_bootstrap(a_bootstrap())

    assert a_bootstrap() == decode_bootstrap(data)
    assert data == (json.dumps(json.loads(data), indent=2, sort_keys=True) + "\n").encode()


def test_bootstrap_manifest_of_old_schemas():
    """Schemas 1 and 2 have no identity; what they have instead is not looked at."""
    old = a_bootstrap(schema_version=2, bootstrap_identity=None)
    data = json.dumps(json.loads(encode_bootstrap(old)) | {"allowed": ["a"]}).encode()

    assert b"bootstrap_identity" not in encode_bootstrap(old)
    assert old == decode_bootstrap(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trainer_version": 1}, "`trainer_version` must be 0 in a bootstrap anchor, found 1"),
        ({"base_train_step": 2}, "`base_train_step` must be 0 in a bootstrap anchor, found 2"),
        ({"base_train_step": True}, "`base_train_step` must be an integer, found true"),
        ({"bootstrap_fingerprint": None}, "`bootstrap_fingerprint` must be text, found null"),
        ({"more": 1}, "`more` is not a field of this format"),
        (
            {"bootstrap_identity": {"schema_version": 6, "excluded_paths": [], "config": {}}},
            "`bootstrap_identity.schema_version` must be 7, found 6",
        ),
    ],
)
def test_bootstrap_manifest_is_strict(change, message):
    """A bootstrap anchor stands for step 0 and version 0, and has exactly its five fields."""
    with pytest.raises(DefectError) as caught:
        decode_bootstrap(json.dumps(json.loads(encode_bootstrap(a_bootstrap())) | change).encode())

    assert message in [defect.message for defect in caught.value.defects]
