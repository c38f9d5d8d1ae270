"""Warnings of a command: what they tell to run is told as it has to be typed."""

from ckptctl.cli.offline import notice_of
from ckptctl.cli.options import Settings


def test_a_warning_names_the_configuration_too(capsys) -> None:
    """As hints do: only one that was named on the command line."""
    text = "free them with `ckptctl publish --release ID --reason TEXT`"
    notice_of(Settings(config="a.yaml", is_config_named=True))(text)
    notice_of(Settings(config="a.yaml"))(text)

    told = capsys.readouterr().err.splitlines()
    assert "warning: free them with `ckptctl publish --config a.yaml --release ID --reason TEXT`" == told[0]
    assert f"warning: {text}" == told[1]
