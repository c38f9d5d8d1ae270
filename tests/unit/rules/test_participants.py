"""PAR rules where samples cannot reach: foreign formats, files that could not be read, contradictions that need two edits."""

from dataclasses import replace

import msgspec
import pytest

from ckptctl.domain.evidence import Evidence, LiveFacts, Part
from ckptctl.domain.finding import Defect
from ckptctl.domain.participant_files import BoundaryRecord
from ckptctl.rules import ALL_RULES
from ckptctl.rules._model import CannotRunError, NotAskedError
from ckptctl.rules.run import run_rules
from tests.builders import APPEND, DROP, an_evidence
from tests.world import MODEL, a_topology

RULES = {rule.id: rule for rule in ALL_RULES}


def messages(rule_id: str, evidence: Evidence) -> list[str]:
    """What one rule says, without its requirements."""
    return [violation.message for violation in RULES[rule_id].check(evidence)]


def unreadable(part):
    return Part(part.path, "unreadable", None, (Defect("permission denied"),))


def a_foreign_model(evidence: Evidence, **changes) -> Evidence:
    """The policy model's folder is in a format that a framework owns: only references count."""
    defect = Defect(
        "has neither `archives` nor `rollouts`: a framework's own format, of which only references can be checked"
    )
    model = evidence.models[0]
    foreign = replace(
        model,
        manifest=replace(model.manifest, state="unsupported", value=None, defects=(defect,)),
        is_foreign=True,
        archives={},
        lineage={},
        **changes,
    )
    return replace(evidence, models=(foreign,))


def test_a_foreign_model_folder_is_incomplete_not_invalid():
    """Rules about its inside could not run; what references and the agents' files say is still judged."""
    judgement = run_rules(a_foreign_model(an_evidence()))

    outcomes = {outcome.rule: outcome.outcome for outcome in judgement.outcomes}
    could_not = {rule for rule, outcome in outcomes.items() if outcome == "could_not_run"}
    assert "incomplete" == judgement.verdict
    assert {"PAR004", "PAR005", "PAR012", "PAR016", "PAR017"} <= could_not
    assert {"passed"} == {
        outcomes[rule] for rule in ("PAR002", "PAR003", "PAR006", "PAR010", "PAR018", "PAR021", "INV004", "INV014")
    }


def test_storage_of_a_foreign_model_is_all_that_is_known_of_it():
    """A continuation without a reference there holds no staged rows."""
    evidence = a_foreign_model(
        an_evidence(
            {"models 0 storage_references value": lambda rows: tuple(r for r in rows if r.capture_key != "g8_g0")}
        )
    )

    assert ["continuation `g8_g0` holds no staged rows"] == messages("PAR015", evidence)


@pytest.mark.parametrize("rule_id", ["PAR013", "PAR014"])
def test_lineage_of_a_foreign_model_cannot_be_judged(rule_id):
    """Its custody files are not ours to read."""
    with pytest.raises(CannotRunError, match="a framework owns"):
        messages(rule_id, a_foreign_model(an_evidence()))


@pytest.mark.parametrize(
    ("rule_id", "place"),
    [
        ("PAR002", "resources 0 manifest"),
        ("PAR006", "agents 0 continuations"),
        ("PAR007", "agents 0 archives agent-part-000000.tar"),
        ("PAR007", "agents 0 records *"),
        ("PAR012", "models 0 archives lineage-part-000000.tar"),
        ("PAR012", "models 0 lineage *"),
        ("PAR026", "resources 0 sessions g7_g0.a1.json"),
    ],
)
def test_what_cannot_be_read_is_never_passed(rule_id, place):
    """A file without permission leaves the rule unanswered, and the snapshot incomplete."""
    judgement = run_rules(an_evidence({place: unreadable}))

    outcomes = {outcome.rule: outcome.outcome for outcome in judgement.outcomes}
    assert outcomes[rule_id] in {"could_not_run", "skipped"}  # skipped where MAN010 says that it could not run
    assert "could_not_run" in outcomes.values()
    assert "incomplete" == judgement.verdict


@pytest.mark.parametrize(
    ("rule_id", "changes", "word"),
    [
        ("PAR002", {"resources": lambda servers: (servers[0], servers[0])}, "the manifest of two participants"),
        ("PAR007", {"agents 0 record_index value": lambda rows: (*rows, rows[0])}, "one archive member twice"),
        ("PAR007", {"agents 0 record_index value 0 archive": "agent-part-000007.tar"}, "the manifest does not"),
        (
            "PAR007",
            {
                "agents 0 manifest value archives 0 name": "first.tar",
                "agents 0 archives": lambda found: {"first.tar": found["agent-part-000000.tar"]},
            },
            "is named `first.tar`",
        ),
        ("PAR007", {"agents 0 archives": {}}, "is missing"),
        ("PAR007", {"agents 0 archives agent-part-000000.tar size_bytes": 1}, "size differs"),
        ("PAR007", {"agents 0 archives agent-part-000000.tar value 0 size_bytes": 1}, "size differs from the index"),
        ("PAR013", {"models 0 lineage_index value": lambda rows: (*rows, rows[0])}, "listed twice"),
        (
            "LED002",
            {"ledger value groups 0 siblings 0 attempts": lambda attempts: attempts[1:]},
            "attempt_index 1 at place 0",
        ),
    ],
)
def test_contradictions(rule_id, changes, word):
    """Each is named by the rule that owns it."""
    assert any(word in message for message in messages(rule_id, an_evidence(changes)))


def test_a_pair_is_saved_once_per_agent():
    """Two archives, each with a record of the same attempt."""
    first, second = "agent-part-000000.tar", "agent-part-000001.tar"
    agent = an_evidence({"agents 0 record_index value": lambda rows: rows[:1]}).agents[0]
    row, archive = agent.record_index.value[0], agent.archives[first]
    part = replace(archive, value=archive.value[:1])
    entry = agent.manifest.value.archives[0].model_copy(update={"members": 1})
    doubled = replace(
        agent,
        record_index=replace(agent.record_index, value=(row, msgspec.structs.replace(row, archive=second))),
        archives={first: part, second: replace(part, path=f"{agent.folder}/{second}")},
        records={(name, row.member): agent.records[first, row.member] for name in (first, second)},
        manifest=replace(
            agent.manifest,
            value=agent.manifest.value.model_copy(
                update={"archives": [entry, entry.model_copy(update={"name": second})]}
            ),
        ),
    )

    assert ["`g7_g0` attempt 1 has two boundary records"] == messages("PAR007", an_evidence(agents=(doubled,)))


def test_call_id_and_capture_key_come_together():
    """Half a reference to a model call leads nowhere."""

    def half(record):
        return BoundaryRecord.model_construct(**{**record.__dict__, "last_committed_model_call_id": None})

    found = messages("PAR007", an_evidence({"agents 0 records * value": half}))

    assert any("come not together" in message for message in found)


@pytest.mark.parametrize("rule_id", ["PAR003", "PAR028", "PAR032"])
def test_without_a_usable_gym_part_nothing_is_judged(rule_id):
    """The rules of the manifest say why."""
    evidence = an_evidence({"manifest manifest gym_checkpoint": None}, live=LiveFacts(restore_replies={}))

    with pytest.raises(CannotRunError) as caught:
        messages(rule_id, evidence)

    assert "MAN005" in caught.value.because


@pytest.mark.parametrize("rule_id", ["PAR022", "PAR025", "PAR028", "PAR029", "PAR030", "PAR031"])
def test_stages_that_were_not_reached_are_not_asked(rule_id):
    """A transaction that ended earlier has nothing to say here."""
    with pytest.raises(NotAskedError):
        messages(rule_id, an_evidence(live=LiveFacts(prune=())))


def test_a_known_topology_answers_what_offline_is_only_told():
    """The note on servers without state gives way to the rules that know them."""
    with pytest.raises(NotAskedError, match="PAR023"):
        messages("PAR033", an_evidence(capabilities=a_topology()))


def test_a_topology_without_restart_only_servers_restarts_nothing():
    """Rule 82 counts dependants of servers that lose their state; there are none."""
    assert [] == messages("PAR024", an_evidence(capabilities=a_topology()[:-1]))


def test_unknown_revisions_restart_with_any_restart_only_server():
    """Null revisions may hide a dependency, so the continuation is counted."""
    evidence = an_evidence({"agents 0 continuations value 0 resource_state_revisions": None}, capabilities=a_topology())

    assert [
        "1 continuation will restart from the task because of `judge`; their sessions on `desk`, `tools` stay bound"
    ] == messages("PAR024", evidence)


def test_a_topology_change_is_incompatible_not_invalid():
    """With a server gone the fingerprint differs; that the set differs too is not said a second time."""
    judgement = run_rules(an_evidence(capabilities=a_topology()[:-2]))

    assert "incompatible" == judgement.verdict
    assert ["FPR004"] == [finding.rule for finding in judgement.findings if finding.severity == "error"]


def test_a_continuation_of_an_older_capture_key_may_be_discarded():
    """Rule 83 asks lineage, not names: the shared first call stays when one of two users is given up."""
    evidence = an_evidence(live=LiveFacts(discarded=(("g8_g0", 0),), cleared_keys=("g8_g0/call-2", "g7_g0/call-5")))

    assert ["staging row `g7_g0/call-5` is shared with continuation `g7_g0-a1`: not to be cleared"] == messages(
        "PAR025", evidence
    )


def test_samples_use_every_edit():
    """DROP and APPEND reach into tuples and lists alike."""
    evidence = an_evidence({"models 0 storage_references value": APPEND("x"), "ledger value groups": APPEND("y")})
    assert "x" == evidence.models[0].storage_references.value[-1]
    assert "y" == evidence.ledger.value.groups[-1]
    assert MODEL == an_evidence({"models 0 lineage_index value 0": DROP}).models[0].entry.participant.participant_name
