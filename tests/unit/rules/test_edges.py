"""What rules do where samples cannot show it: missing counterparts, damage on the way, what is passed over."""

from dataclasses import replace

import pytest

from ckptctl.domain.evidence import ManifestReading, Part, RunFacts
from ckptctl.domain.finding import Defect
from ckptctl.rules._model import CannotRunError, NotAskedError
from ckptctl.rules.anchor import anchor_of, check_same_bootstrap, mismatch
from ckptctl.rules.binding import check_ledger_bytes, check_partition_and_sampler, check_unbound, cut_of
from ckptctl.rules.binding_record import binding_of
from ckptctl.rules.fingerprint import (
    check_config_drift,
    check_config_fingerprint,
    check_dataset,
    check_stored_digest,
    check_topology,
    setting,
)
from ckptctl.rules.gym_manifest import check_generation_cuts, check_gym_shape, gym_of, manifest_of
from ckptctl.rules.layout import check_layout
from ckptctl.rules.manifest import check_legacy_buffer, check_required_files
from ckptctl.rules.run import run_rules
from tests.builders import a_bootstrap_world, a_world, an_anchor_evidence, an_evidence
from tests.rules.manifest_samples import added
from tests.world import MODEL, TOOLS, a_server, a_topology


def outcome_of(rule, evidence, **choice):
    return next((item.outcome, item.reason) for item in run_rules(evidence, **choice).outcomes if item.rule == rule)


def messages(check, evidence):
    return [violation.message for violation in check(evidence)]


def test_what_is_not_there_is_said_with_who_reports_it():
    """Each way to a missing fact names the rules that explain it."""
    bare = an_evidence({"anchor": None, "cut": None, "manifest": ManifestReading(Part("manifest.json", "missing"))})
    for ask, rule in ((anchor_of, "MAN001"), (cut_of, "MAN003"), (manifest_of, "MAN002"), (binding_of, None)):
        if rule is None:
            assert binding_of(bare).mode == "authoritative"
            continue
        with pytest.raises(CannotRunError) as caught:
            ask(bare)
        assert rule in caught.value.because
    with pytest.raises(CannotRunError) as caught:
        gym_of(an_evidence(world=a_world(with_gym=False)))
    assert caught.value.because == ("MAN005",)


def test_a_broken_binding_record_stops_its_readers():
    """One finding for the record, none for what it would say."""
    judgement = run_rules(an_evidence({"metadata value user_metadata single_controller_epoch": "0"}))
    with pytest.raises(CannotRunError) as caught:
        binding_of(an_evidence({"metadata value user_metadata single_controller_epoch": "0"}))

    assert ["BND001"] == [finding.rule for finding in judgement.findings]
    assert caught.value.because == ("BND001",)


def test_a_ledger_without_a_digest_could_not_be_compared():
    """A ledger that is missing, or was not read to its end, is no proof."""
    with pytest.raises(CannotRunError, match="not read completely"):
        list(check_ledger_bytes(an_evidence({"ledger sha256": None})))
    with pytest.raises(CannotRunError, match="missing"):
        list(check_ledger_bytes(an_evidence({"ledger": Part("rollout_recovery.pt", "missing")})))


def test_every_group_names_the_same_partition():
    """The replay metadata must agree with itself, too."""
    found = messages(check_partition_and_sampler, an_evidence({"replay value groups 1 meta partition_id": "other"}))

    assert found == ["`partition_id` differs: `rollout_data` / `other` (replay group `g6`)"]


def test_nothing_unbound_is_said_of_files_that_are_not_there():
    """Without any of the three there is nothing to say."""
    gone = {name: Part("x", "missing") for name in ("reserve", "dataloader", "config")}

    assert messages(check_unbound, an_evidence(gone)) == []


def test_an_anchor_of_an_older_build_has_no_identity():
    """Its digest covers something else; nothing is known to be wrong."""
    older = an_evidence({"anchor bootstrap value bootstrap_identity": None}, world=a_bootstrap_world())

    assert outcome_of("FPR001", older)[0] == "could_not_run"


@pytest.mark.parametrize(
    ("check", "changes", "world"),
    [
        (
            check_stored_digest,
            {"anchor bootstrap value bootstrap_identity config grpo": {"seed": float("nan")}},
            a_bootstrap_world(),
        ),
        (check_config_fingerprint, {"config value grpo": {"seed": float("inf")}}, a_bootstrap_world()),
        (
            check_config_drift,
            {"config value grpo": {3: 1}},
            a_world(),
        ),
    ],
)
def test_what_has_no_fingerprint_could_not_be_compared(check, changes, world):
    """A number that is not finite, or a key that is no text, is not a difference."""
    with pytest.raises(CannotRunError):
        list(check(an_evidence(changes, world=world)))


def test_a_manifest_without_a_fingerprint_is_not_compared():
    """Another rule says that there must be one."""
    with pytest.raises(NotAskedError):
        list(check_config_fingerprint(an_evidence()))


def test_topology_changes_are_named_where_they_can_be():
    """Another routing name, another mode, a server more: from the saved participants alone."""
    model, *others = a_topology()
    renamed = model.model_copy(update={"server_name": "policy"})
    stateless = tuple(
        a_server(TOOLS, "resources_servers", mode="restart_only") if server.server_name == TOOLS else server
        for server in others
    )
    found = messages(
        check_topology, an_evidence(capabilities=(renamed, *stateless, a_server("new", "resources_servers")))
    )

    assert len(found) == 1
    for words in (
        f"`server_name` `{MODEL}` -> `policy`",
        "`checkpoint_mode` `export_restore` -> `restart_only`",
        "`new` exports state now",
    ):
        assert words in found[0]
    assert (
        messages(check_topology, an_evidence({"manifest manifest gym_topology_fingerprint": None}, capabilities=()))
        == []
    )


def test_without_any_other_configuration_the_dataset_is_not_compared():
    """An anchor need not have a `config.yaml`."""
    with pytest.raises(NotAskedError):
        list(check_dataset(an_evidence({"anchor config": Part("config.yaml", "missing")})))
    assert setting({"data": 3}, ("data", "train")) is None


def test_a_bootstrap_digest_that_differs_alone_is_said():
    """Same identity, other digest: the anchor does not match itself."""
    ours = an_evidence(world=a_bootstrap_world()).anchor.bootstrap.value
    evidence = an_evidence(
        {"anchor bootstrap value bootstrap_fingerprint": "ab" * 32},
        world=a_bootstrap_world(),
        run=RunFacts(bootstrap_manifest=ours),
    )

    assert ["does not match the identity" in text for text in messages(check_same_bootstrap, evidence)] == [True]
    with pytest.raises(NotAskedError):
        list(check_same_bootstrap(replace(evidence, run=RunFacts(participant_checkpointing=True))))


def test_an_unreadable_bootstrap_manifest_does_not_make_snapshots_foreign():
    """The anchor is to blame, and its rule says so."""
    anchor = an_anchor_evidence(
        {"anchor bootstrap": Part("manifest.json", "damaged", None, (Defect("is not JSON"),))},
        world=a_bootstrap_world(),
    ).anchor

    assert mismatch(anchor, anchor.snapshots[0]) is None


def test_a_bad_reference_is_looked_for_at_the_participant():
    """The outer manifest only repeats what the participant reported at commit."""
    place = "gym_checkpoint.participants.2.payload.storage_reference_index.relative_path"
    defect = Defect(f"`{place}` must not contain `..`", place)
    evidence = an_evidence({"manifest gym_defects": (defect,), "manifest manifest gym_checkpoint": None})
    raw = evidence.manifest.raw["gym_checkpoint"]["participants"]
    path = raw[2]["manifest"]["relative_path"]
    nameless = an_evidence(
        {"manifest raw gym_checkpoint participants 2 manifest": None, "manifest gym_defects": (defect,)}
    )

    assert ["manifest.json", path] == [violation.artifact for violation in check_gym_shape(evidence)]
    assert ["manifest.json"] == [violation.artifact for violation in check_gym_shape(nameless)]


def test_what_lies_in_a_foreign_folder_is_said_once():
    """The folder is named, not everything in it; a link in it still is."""
    tree = an_evidence().tree
    for path, kind in (
        ("other", "directory"),
        ("other/a", "directory"),
        ("other/a/b", "file"),
        ("other/a/link", "symlink"),
    ):
        tree = added(path, kind)(tree)

    assert ["other", "other/a/link"] == [violation.artifact for violation in check_layout(an_evidence(tree=tree))]


@pytest.mark.parametrize(
    ("path", "kind", "word"),
    [
        ("Config.yaml", "file", "differ only in case"),
        ("resources/tools/pipe", "fifo", "not listed"),
        ("data_plane/simple_storage/su_9_x.pkl", "fifo", "named pipe"),
    ],
)
def test_odd_names_and_kinds(path, kind, word):
    """A twin of another case, a pipe among sessions, a pipe in place of a unit."""
    found = messages(check_layout, an_evidence(tree=added(path, kind)(an_evidence().tree)))

    assert any(word in text for text in found)


def test_names_that_differ_in_unicode_form_are_one_file_elsewhere():
    """Composed and decomposed letters."""
    tree = added("resources/tools/e\u0301.json")(added("resources/tools/\u00e9.json")(an_evidence().tree))

    assert any("Unicode form" in text for text in messages(check_layout, an_evidence(tree=tree)))


def test_gym_folders_are_not_judged_without_a_list_of_participants():
    """What belongs there is unknown then; another rule speaks."""
    evidence = an_evidence({"manifest manifest gym_checkpoint": None, "manifest gym_defects": (Defect("x"),)})

    assert messages(check_layout, evidence) == []


def test_a_frameworks_own_ledger_folder_may_hold_anything():
    """Only its references can be checked."""
    tree = added(f"model-ledger/{MODEL}/shards/0.bin")(
        added(f"model-ledger/{MODEL}/shards", "directory", mode=0o755)(an_evidence().tree)
    )
    foreign = an_evidence(
        {"models 0 is_foreign": True, "models 0 manifest value": None, "models 0 manifest state": "unsupported"},
        tree=tree,
    )

    assert messages(check_layout, foreign) == []


def test_unread_manifests_leave_patterns():
    """At level quick names are all there is."""
    evidence = an_evidence({"agents": (), "models": (), "resources": ()}, level="quick")

    assert run_rules(evidence).verdict == "valid"
    assert messages(check_layout, replace(evidence, tree=added("resources/tools/notes.txt")(evidence.tree))) == [
        "`resources/tools/notes.txt` is not part of the format"
    ]


def test_a_tree_that_could_not_be_listed_is_not_called_empty():
    """Nothing is missing where nobody could look."""
    blind = an_evidence(tree=(), tree_problem="permission denied")
    for check in (check_required_files, check_layout):
        with pytest.raises(CannotRunError, match="permission denied"):
            list(check(blind))


def test_a_damaged_configuration_is_a_warning_and_leaves_the_feature_open():
    """Whether the run had participants is then unknown, which is not *valid*."""
    judgement = run_rules(an_evidence({"config": Part("config.yaml", "damaged", None, (Defect("has a tag"),), 5)}))

    assert judgement.verdict == "incomplete"
    assert {("MAN010", "warning"), ("FPR005", "warning")} == {
        (finding.rule, finding.severity) for finding in judgement.findings
    }


def test_an_anchor_without_sidecars_has_nothing_to_bind():
    """A step whose sampler saves no buffer: its rules are skipped, each with the reason."""
    fields = ("rollout_recovery_payload_sha256", "rollout_recovery_group_count", "rollout_recovery_schema_version")
    more = ("replay_manifest_digest", "replay_group_count", "replay_metadata_schema_version")
    bare = an_anchor_evidence(
        {
            "ledger": Part("rollout_recovery.pt", "missing"),
            "replay": Part("replay_buffer_metadata.pt", "missing"),
            **{f"metadata value user_metadata {field}": None for field in (*fields, *more)},
        }
    )
    outcomes = {item.rule: item.outcome for item in run_rules(bare).outcomes if item.rule.startswith("BND")}

    assert {"BND004", "BND005", "BND006", "BND007"} == {
        rule for rule, outcome in outcomes.items() if outcome == "skipped"
    }
    assert (
        outcome_of("BND010", an_anchor_evidence({"cut sampler_dispatch_index": None}))[1]
        == "the sampler's cursor is not known"
    )


def test_a_reply_that_counts_cuts_belongs_to_another_schema():
    """A later server may add the count to its commit reply; schema 4 cannot represent it."""
    place = "manifest manifest gym_checkpoint participants"
    at = next(
        index
        for index, entry in enumerate(an_evidence().manifest.manifest.gym_checkpoint.participants)
        if entry.participant.participant_name == MODEL
    )
    found = list(check_generation_cuts(an_evidence({f"{place} {at} payload generation_cut_records": 2})))

    assert [("manifest.json", "2")] == [(violation.artifact, violation.actual) for violation in found]


def test_a_legacy_buffer_in_the_anchor_itself():
    """Without the metadata file beside it, it is the old format."""
    tree = tuple(entry for entry in an_anchor_evidence().tree if entry.path != "replay_buffer_metadata.pt")
    found = list(check_legacy_buffer(an_anchor_evidence(tree=added("replay_buffer.pt")(tree))))

    assert ["replay_buffer.pt"] == [violation.artifact for violation in found]
