"""The control token."""

from __future__ import annotations

import pytest

from ckptctl.adapters.credentials import load_token
from ckptctl.domain.config import OwnSection
from ckptctl.errors import ConfigError


def own(**values: object) -> OwnSection:
    return OwnSection.model_validate({"controller": {"url": "http://a"}, **values})


def test_from_the_environment() -> None:
    """The variable that the configuration names; by default the one that Gym servers read."""
    assert "abc" == load_token(own(), "c.yaml", {"NEMO_GYM_CHECKPOINT_CONTROL_TOKEN": "abc\n"})
    assert "xyz" == load_token(own(token_env="MINE"), "c.yaml", {"MINE": "xyz"})
    with pytest.raises(ConfigError, match="names `MINE`, which is not set"):
        load_token(own(token_env="MINE"), "c.yaml", {})


def test_from_a_private_file(tmp_path) -> None:
    """A file of mode 0600, also through a link; one that others may read is refused."""
    path = tmp_path / "token"
    path.write_text("abc\n")
    path.chmod(0o600)
    (tmp_path / "link").symlink_to(path)

    assert "abc" == load_token(own(token_file=str(path)), "c.yaml", {})
    assert "abc" == load_token(own(token_file=str(tmp_path / "link")), "c.yaml", {})
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="mode 0640"):
        load_token(own(token_file=str(path)), "c.yaml", {})
    with pytest.raises(ConfigError, match="cannot be read"):
        load_token(own(token_file=str(tmp_path)), "c.yaml", {})


def test_what_is_no_token_is_not_shown() -> None:
    """A value that cannot be a header is refused without repeating it."""
    for value in ("two words", "naïve", "  "):
        with pytest.raises(ConfigError, match="does not give a token") as refusal:
            load_token(own(token_env="MINE"), "c.yaml", {"MINE": value})
        assert value not in str(refusal.value)
