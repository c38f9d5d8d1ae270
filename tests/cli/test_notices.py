"""Warnings of a command: what they tell to run is told as it has to be typed."""

import json

from ckptctl.cli.answer import unsaid
from ckptctl.cli.offline import notice_of
from ckptctl.cli.options import Settings
from ckptctl.domain.transaction import TransactionResult
from ckptctl.workflows import publish
from ckptctl.workflows.world import with_warnings
from tests.cli.test_metrics import configured
from tests.command_line import run
from tests.runs import a_run


def test_a_warning_names_the_configuration_too(capsys) -> None:
    """As hints do: only one that was named on the command line."""
    text = "free them with `ckptctl publish --release ID --reason TEXT`"
    notice_of(Settings(config="a.yaml", is_config_named=True))(text)
    notice_of(Settings(config="a.yaml"))(text)

    told = capsys.readouterr().err.splitlines()
    assert "warning: free them with `ckptctl publish --config a.yaml --release ID --reason TEXT`" == told[0]
    assert f"warning: {text}" == told[1]


def test_a_warning_is_said_once(monkeypatch, tmp_path) -> None:
    """On stderr when it comes up, in the text of the answer no more; JSON, whose stderr is silent, has it in the answer."""

    async def warned(world, config, request):
        world, warnings = with_warnings(world)
        world.notice("a server is slow")
        return TransactionResult(outcome="nothing_to_do").model_copy(update={"warnings": tuple(warnings)})

    monkeypatch.setattr(publish, "finish_publish", warned)
    words = ("publish", "--config", configured(a_run(tmp_path / "run", step_3=1)))
    token = {"NEMO_GYM_CHECKPOINT_CONTROL_TOKEN": "t"}
    text, as_json = run(*words, environment=token), run(*words, "--format", "json", environment=token)

    assert (1, 0) == (text.stderr.count("a server is slow"), text.stdout.count("a server is slow"))
    assert ("", ["a server is slow"]) == (as_json.stderr, json.loads(as_json.stdout)["warnings"])


def test_what_was_not_said_stays_in_the_answer() -> None:
    """A plan's warnings, which nobody was told on the way."""
    settings = Settings(said={"one"})
    result = TransactionResult(outcome="nothing_to_do", warnings=("one", "two"))

    assert ("two",) == unsaid(settings, result).warnings
