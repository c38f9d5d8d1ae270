"""A hint that names a command says it as it has to be typed."""

import pytest

from ckptctl.render.next_command import with_config


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("run `ckptctl publish`: it", "run `ckptctl publish --config a.yaml`: it"),
        ("`ckptctl inspect --live` shows", "`ckptctl inspect --config a.yaml --live` shows"),
        ("`ckptctl gc --undelete`", "`ckptctl gc --config a.yaml --undelete`"),
        (
            "`ckptctl publish --release ID --reason TEXT`",
            "`ckptctl publish --config a.yaml --release ID --reason TEXT`",
        ),
        ("`ckptctl restore --config b.yaml`", "`ckptctl restore --config b.yaml`"),
        ("`ckptctl gc --pin step_1/snapshot_000001`", "`ckptctl gc --pin step_1/snapshot_000001`"),
        ("`ckptctl validate` and `ckptctl slurm list`", "`ckptctl validate` and `ckptctl slurm list`"),
        ("ckptctl publish is no command here", "ckptctl publish is no command here"),
    ],
)
def test_a_command_names_the_configuration(text, told):
    """Only where it needs one, and none is in it."""
    assert told == with_config(text, "a.yaml")
    assert text == with_config(text, None)


def test_a_name_with_blanks_is_quoted():
    """What is copied works."""
    assert "`ckptctl publish --config 'my run.yaml'`" == with_config("`ckptctl publish`", "my run.yaml")
