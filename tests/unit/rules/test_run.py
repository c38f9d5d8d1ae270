"""The engine: order, skipping, what could not run, choice, cutting, verdict."""

import re

import pytest

from ckptctl.domain.evidence import Evidence, LiveFacts, ManifestReading, Part
from ckptctl.domain.finding import Violation
from ckptctl.domain.limits import Limits
from ckptctl.rules._model import CannotRunError, NotAskedError, Rule
from ckptctl.rules._registry import assemble, evaluation_order
from ckptctl.rules.run import GAP_HINT, run_rules, unknown_words


def an_evidence(**changes):
    """A snapshot of which nothing was read."""
    gone = Part("x", "missing")
    facts = {
        "path": "/runs/step_1/rollout_snapshots/snapshot_000001",
        "kind": "snapshot",
        "name": "snapshot_000001",
        "level": "standard",
        "tree": (),
        "manifest": ManifestReading(part=gone),
        "anchor": None,
        "cut": None,
        **dict.fromkeys(
            ("config", "dataloader", "reserve", "replay", "ledger", "metadata", "unit_info", "controller_state"), gone
        ),
        "units": {},
        **changes,
    }
    return Evidence(**facts)


def a_rule(rule_id, *outcomes, **changes):
    """A rule that yields violations and raises exceptions in the given order."""

    def check(evidence):
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
            yield outcome if isinstance(outcome, Violation) else Violation(outcome)

    facts = {
        "invariant": 1,
        "name": f"defect-{rule_id.lower()}",
        "summary": "It holds.",
        "why": "Because.",
        "hint": "Mend it.",
        "severity": "error",
        "level": "standard",
        "check": check,
        **changes,
    }
    return Rule(id=rule_id, **facts)


def judged(*rules, evidence=None, **choice):
    """The judgement, and each rule's outcome with its reason."""
    judgement = run_rules(evidence or an_evidence(), rules=tuple(rules), **choice)
    return judgement, {item.rule: (item.outcome, item.reason) for item in judgement.outcomes}


def test_nothing_wrong_is_valid():
    """Rules that yield nothing pass."""
    judgement, outcomes = judged(a_rule("MAN001"), a_rule("LED001"))

    assert judgement.verdict == "valid"
    assert outcomes == {"MAN001": ("passed", ""), "LED001": ("passed", "")}


def test_an_error_makes_invalid_and_names_its_rule():
    """A violation becomes a finding with the rule's own texts."""
    judgement, outcomes = judged(a_rule("MAN001", Violation("it is wrong", "a.pt", "line 3", "1", "2")))

    assert judgement.verdict == "invalid"
    assert outcomes["MAN001"] == ("failed", "")
    assert [finding.model_dump() for finding in judgement.findings] == [
        {
            "rule": "MAN001",
            "name": "defect-man001",
            "severity": "error",
            "incompatible": False,
            "artifact": "a.pt",
            "location": "line 3",
            "message": "it is wrong",
            "expected": "1",
            "actual": "2",
            "hint": "Mend it.",
            "count": 1,
            "kind": "breach",
        }
    ]


def test_only_incompatible_errors_make_incompatible():
    """Nothing is damaged when every error is of another schema, anchor or fingerprint."""
    other = Violation("another schema", incompatible=True)

    assert judged(a_rule("MAN004", other))[0].verdict == "incompatible"
    assert judged(a_rule("MAN004", other), a_rule("LED001", "broken"))[0].verdict == "invalid"
    assert judged(a_rule("MAN004", other), a_rule("LED001", CannotRunError("unknown")))[0].verdict == "incompatible"


def test_warnings_keep_valid():
    """A rule of severity warning, or a breach of an error rule that is only a warning, is listed and no more."""
    judgement, outcomes = judged(
        a_rule("MAN009", Violation("odd", warning=True)), a_rule("DUR003", "secret", severity="warning")
    )

    assert judgement.verdict == "valid"
    assert [finding.severity for finding in judgement.findings] == ["warning", "warning"]
    assert outcomes["MAN009"] == ("failed", "")


def test_information_is_a_note():
    """What is merely worth knowing is no finding, and the rule passes."""
    judgement, outcomes = judged(a_rule("LED011", "three groups", severity="information"))

    assert (judgement.verdict, judgement.findings) == ("valid", ())
    assert [note.message for note in judgement.notes] == ["three groups"]
    assert outcomes["LED011"] == ("passed", "")


def test_dependants_of_a_failure_are_skipped_because_of_its_root():
    """One broken manifest gives one finding; who depends on a skipped rule names the failed one."""
    judgement, outcomes = judged(
        a_rule("BND001", "broken"),
        a_rule("LED001", "never said", requires=("BND001",)),
        a_rule("INV001", "never said", requires=("LED001",)),
    )

    assert len(judgement.findings) == 1
    assert outcomes["LED001"] == outcomes["INV001"] == ("skipped", "because of BND001")


def test_a_warning_does_not_stop_dependants():
    """Only errors do."""
    _, outcomes = judged(a_rule("MAN001", Violation("odd", warning=True)), a_rule("MAN002", requires=("MAN001",)))

    assert outcomes["MAN002"] == ("passed", "")


def test_what_could_not_run_makes_incomplete_and_is_a_finding():
    """Never valid where something could not be checked; the file is named once, however many rules wanted it."""
    lacking = CannotRunError("`rollout_recovery.pt`: unknown ledger", artifact="rollout_recovery.pt")
    judgement, outcomes = judged(
        a_rule("BND005", lacking), a_rule("LED001", lacking), a_rule("LED002", requires=("LED001",))
    )

    assert judgement.verdict == "incomplete"
    assert [(finding.rule, finding.severity, finding.artifact, finding.hint) for finding in judgement.findings] == [
        ("LED001", "warning", "rollout_recovery.pt", GAP_HINT)
    ]
    assert outcomes["LED001"] == ("could_not_run", "`rollout_recovery.pt`: unknown ledger")
    assert outcomes["LED002"] == ("skipped", "because of LED001")


def test_a_warning_rule_that_could_not_run_does_not_count():
    """Only rules of severity error keep a target from being valid."""
    judgement, outcomes = judged(a_rule("FPR003", CannotRunError("no configuration"), severity="warning"))

    assert (judgement.verdict, judgement.findings) == ("valid", ())
    assert outcomes["FPR003"] == ("could_not_run", "no configuration")


def test_lacking_what_another_rule_reported_is_skipping():
    """`because` counts only when one of the named rules really failed, in whatever order they ran."""
    lacking = CannotRunError("no ledger", because=("MAN002", "LED001"))

    assert judged(a_rule("BND005", lacking), a_rule("LED001", "broken"))[1]["BND005"] == (
        "skipped",
        "because of LED001",
    )
    assert judged(a_rule("BND005", lacking), a_rule("LED001"))[1]["BND005"] == ("could_not_run", "no ledger")


def test_rules_that_blame_one_another_could_not_run():
    """A circle of blame without a failure explains nothing."""
    judgement, outcomes = judged(
        a_rule("MAN003", CannotRunError("no manifest", because=("MAN004",))),
        a_rule("MAN004", CannotRunError("no manifest", because=("MAN003",))),
    )

    assert judgement.verdict == "incomplete"
    assert {outcome for outcome, _ in outcomes.values()} <= {"could_not_run", "skipped"}
    assert "could_not_run" in {outcome for outcome, _ in outcomes.values()}


@pytest.mark.parametrize("blamed", ["MAN004", "LED001"])
def test_a_circle_of_requirement_and_blame_names_somebody(blamed):
    """Whoever waits for a rule that blames its like, or the very one that waits for it, says at least for whom it waits."""
    rules = (
        a_rule("MAN003", CannotRunError("no manifest", because=(blamed,))),
        a_rule("MAN004", CannotRunError("no manifest", because=("MAN003",))),
        a_rule("LED001", requires=("MAN003",)),
    )
    _, outcomes = judged(*rules, select=("LED001",))

    assert re.fullmatch(r"needs MAN00[34], which did not pass and was not selected", outcomes["LED001"][1])


def test_errors_found_before_giving_up_count():
    """A rule that finds a breach and then cannot go on has failed; with warnings only it could not run."""
    judgement, outcomes = judged(a_rule("PAR006", "broken", CannotRunError("and more unread")))
    milder, _ = judged(a_rule("PAR006", Violation("odd", warning=True), CannotRunError("and more unread")))

    assert (judgement.verdict, outcomes["PAR006"][0]) == ("invalid", "failed")
    assert milder.verdict == "incomplete"
    assert [finding.message for finding in milder.findings] == ["odd", "could not be checked: and more unread"]


def test_what_was_not_asked_is_skipped():
    """A live stage that was not reached is said and not held against the verdict."""
    judgement, outcomes = judged(a_rule("DUR006", NotAskedError("no run yet")))

    assert judgement.verdict == "valid"
    assert outcomes["DUR006"] == ("skipped", "no run yet")


@pytest.mark.parametrize(
    ("need", "evidence", "word"),
    [
        ("live", an_evidence(), "live servers"),
        ("capabilities", an_evidence(), "--capabilities"),
        ("run", an_evidence(), "configuration"),
        ("gym", an_evidence(), "Gym"),
        ("anchor", an_evidence(), "anchor"),
        ("step_anchor", an_evidence(), "step"),
        ("bootstrap_anchor", an_evidence(), "bootstrap"),
        ("cut", an_evidence(), "counters"),
        ("data_plane", an_evidence(kind="anchor"), "data plane"),
    ],
)
def test_missing_facts_skip(need, evidence, word):
    """Each need that is not met is said in its own words."""
    judgement, outcomes = judged(
        a_rule("MAN001", "never said", needs=(need,), targets=("snapshot", "anchor")), evidence=evidence
    )

    assert judgement.verdict == "valid"
    assert outcomes["MAN001"][0] == "skipped"
    assert word in outcomes["MAN001"][1]


def test_present_facts_do_not_skip():
    """With live facts a live rule runs."""
    _, outcomes = judged(a_rule("DUR006", needs=("live", "data_plane")), evidence=an_evidence(live=LiveFacts(prune=())))

    assert outcomes["DUR006"] == ("passed", "")


def test_levels():
    """A rule of a deeper level is skipped, and its dependants run without it."""
    rules = (a_rule("INV006", "never said", level="full"), a_rule("INV007", requires=("INV006",), level="quick"))
    judgement, outcomes = judged(*rules, level="standard")

    assert judgement.verdict == "valid"
    assert outcomes == {"INV006": ("skipped", "belongs to level full"), "INV007": ("passed", "")}
    assert judged(*rules, level="full")[0].verdict == "invalid"


def test_rules_of_other_targets_do_not_appear():
    """A rule for anchors is not mentioned on a snapshot, and does not block there."""
    _, outcomes = judged(a_rule("ANC006", "never said", targets=("anchor",)), a_rule("MAN001", requires=("ANC006",)))

    assert outcomes == {"MAN001": ("passed", "")}


def test_selecting():
    """By id, name or family; everything else is said to be left out."""
    rules = (a_rule("MAN001", "broken"), a_rule("LED001", "broken"), a_rule("LED002", "broken"))
    judgement, outcomes = judged(*rules, select=("LED", "defect-man001"), ignore=("LED002",))

    assert [finding.rule for finding in judgement.findings] == ["LED001", "MAN001"]
    assert outcomes["LED002"] == ("skipped", "ignored on request")
    assert judged(*rules, select=("LED001",))[1]["MAN001"] == ("skipped", "not selected")
    assert unknown_words(("LED", "LED009", "defect-led001"), rules) == ("LED009",)


def test_a_selected_rule_behind_an_unselected_failure_is_not_valid():
    """Leaving out the rule that failed must not turn its dependants into a clean bill."""
    rules = (a_rule("BND004", "broken"), a_rule("LED001", requires=("BND004",)))
    judgement, outcomes = judged(*rules, select=("LED001",))

    assert judgement.verdict == "incomplete"
    assert outcomes["LED001"] == ("could_not_run", "needs BND004, which did not pass and was not selected")
    assert judged(*rules, ignore=("BND004",))[0].verdict == "incomplete"


def test_many_findings_are_cut_and_counted():
    """The last finding says how many there are; the verdict knows all of them."""
    violations = [Violation(f"{number}", warning=True) for number in range(5)] + [Violation("the worst")]
    judgement, _ = judged(a_rule("MAN009", *violations), limits=Limits(findings_shown=3))

    assert judgement.verdict == "invalid"
    assert [finding.message for finding in judgement.findings] == ["0", "1", "2", "and 3 more of this kind (6 in all)"]
    assert (judgement.findings[-1].severity, judgement.findings[-1].count) == ("error", 3)


def test_cut_incompatible_findings_stay_incompatible():
    """The summarising finding is as mild as what it stands for."""
    judgement, _ = judged(
        a_rule("MAN004", *[Violation("other", incompatible=True)] * 4), limits=Limits(findings_shown=2)
    )

    assert judgement.verdict == "incompatible"


def test_texts_are_made_safe():
    """Nothing from a file reaches a terminal as a control sequence, whatever field it is in."""
    hostile = "\x1b[2J\u202eevil[bold]\ud800\n" + "x" * 5000
    judgement, _ = judged(a_rule("MAN001", Violation(hostile, hostile, hostile, hostile, hostile)))
    finding = judgement.findings[0]

    for text in (finding.message, finding.artifact, finding.location, finding.expected, finding.actual):
        assert text.startswith(r"\x1b[2J")
        assert not any(ord(character) < 32 or character in "\u202e\ud800" for character in text)
        assert len(text) < 2100


def test_order_follows_requirements_then_families():
    """Manifest first, then anchor, fingerprint, binding, ledger, participants, inventory; requirements override."""
    rules = [a_rule(rule_id) for rule_id in ("INV001", "PAR001", "LED001", "BND001", "FPR001", "ANC001", "MAN002")]
    rules.append(a_rule("MAN001", requires=("INV001",)))
    ordered = [rule.id for rule in evaluation_order(tuple(rules))]

    assert ordered == ["MAN002", "ANC001", "FPR001", "BND001", "LED001", "PAR001", "INV001", "MAN001"]


@pytest.mark.parametrize(
    ("families", "problem"),
    [
        (((a_rule("MAN002"), a_rule("MAN001")),), "sorted"),
        (((a_rule("MAN001"),), (a_rule("MAN001", name="other"),)), "same id"),
        (((a_rule("MAN001"),), (a_rule("MAN002", name="defect-man001"),)), "same name"),
        (((a_rule("MAN001", requires=("MAN009",)),),), "MAN009"),
        (((a_rule("XYZ001"),),), "no rule id"),
        (((a_rule("MAN001", name="no-ledger"),),), "name"),
        (((a_rule("MAN001", hint="mend it"),),), "full stop"),
        (
            ((a_rule("MAN001", requires=("MAN003", "MAN002")), a_rule("MAN002"), a_rule("MAN003")),),
            "requires is not sorted",
        ),
        (((a_rule("MAN001", targets=()),),), "nothing"),
        (((a_rule("MAN001", requires=("MAN002",)), a_rule("MAN002", requires=("MAN001",))),), "circle"),
    ],
)
def test_a_contradictory_catalogue_is_a_bug(families, problem):
    """A mistake in the list of rules stops the import."""
    with pytest.raises(RuntimeError, match=problem):
        assemble(*families)
