"""A report for people: one cause is one entry, and a verdict says no more than what was proved."""

import pytest

from ckptctl.domain.finding import Coverage, ShareInfo, Unchecked
from ckptctl.render.report_text import report_text
from tests.unit.render.reports import RUN, a_finding, a_report, a_target, an_anchor, an_outcome, ignored

WHOLE = Coverage(files_total=1, files_checked=1, bytes_total=1, bytes_checked=1)
SNAPSHOTS = f"{RUN}/step_3/rollout_snapshots"


def lines(report, verbose=0):
    return report_text(report, verbose=verbose, to_terminal=False).splitlines()


def head(target, *others):
    """The first line about the first target."""
    return lines(a_report(target, *others))[0].rpartition(": ")[2]


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (
            a_target(level="quick"),
            "valid at level quick (names, manifest and anchor only; payload not read)",
        ),
        (a_target(), "valid at level standard (can be restored; values of tensors were not recomputed)"),
        (a_target(level="full"), "valid at level full (can be restored; nothing covers 1.0 KiB of it)"),
        (a_target(level="full", coverage=WHOLE), "valid at level full (can be restored)"),
        (
            a_target(outcomes=(an_outcome("MAN001"), ignored("LED001"))),
            "valid at level standard (as far as the chosen rules tell; 1 rule left out on request)",
        ),
        (an_anchor(), "valid at level standard (its own files; there is no snapshot in it)"),
        (
            a_target("/data_plane", kind="data_plane"),
            "valid at level standard (consistent in itself; nothing here says which snapshot it belongs to)",
        ),
        (a_target(verdict="invalid"), "invalid at level standard (must not be restored)"),
    ],
)
def test_a_verdict_says_what_was_proved(target, words):
    """Never "can be restored" where the payload, rules or snapshots were not looked at."""
    assert words == head(target)


def test_a_part_of_the_data_proves_a_part():
    """Neither a shard nor a subset says that anything can be restored."""
    subset, shard = a_share("subset", 8, 10), a_share("shard", 1, 2)

    assert lines(a_report(a_target(level="full"), share=subset))[0].endswith(
        ": valid at level full (as far as part 8/10 of the data tells)"
    )
    assert lines(a_report(a_target(level="full"), share=shard))[0].endswith(
        ": valid at level full (as far as shard 1/2 tells)"
    )


def test_an_anchor_says_whether_there_is_anything_to_restore():
    """Its own verdict says nothing of its snapshots."""
    good, bad = a_target(), a_target(f"{SNAPSHOTS}/snapshot_000002", verdict="invalid")

    assert head(an_anchor(), good, bad).endswith("(its own files; 1 of 2 snapshots valid)")
    assert head(an_anchor(), bad).endswith("(its own files; no valid snapshot among 1)")
    quick = [target.model_copy(update={"level": "quick"}) for target in (an_anchor(), good)]
    assert head(*quick).endswith("; 1 of 1 snapshot looks whole)")

    both = (*quick, a_target(f"{SNAPSHOTS}/snapshot_000002", level="quick"))
    assert head(*both).endswith("; 2 of 2 snapshots look whole)")
    worse = (*quick, a_target(f"{SNAPSHOTS}/snapshot_000002", level="quick", verdict="invalid"))
    assert head(*worse).endswith("; 1 of 2 snapshots looks whole)")


BOTH = (a_target(level="full"), a_target(f"{SNAPSHOTS}/snapshot_000002", level="full"))
LEFT = (
    a_target(outcomes=(ignored("LED001"),)),
    a_target(f"{SNAPSHOTS}/snapshot_000002", outcomes=(ignored("LED001"),)),
)
JUDGED = "newest snapshot without an error in what was judged: /run/step_3/rollout_snapshots/snapshot_000002"


def a_share(kind, index, count):
    return ShareInfo(kind=kind, index=index, count=count, subject="a" * 64)


@pytest.mark.parametrize(
    ("targets", "share", "closing"),
    [
        (
            BOTH,
            a_share("shard", 1, 2),
            [
                (
                    "shard 1/2: nothing wrong in this part at level full "
                    "(2 targets, 2 of 2 snapshots without an error in what was judged)"
                ),
                "the verdict on the whole is that of `ckptctl validate --merge` over all 2 reports",
            ],
        ),
        (
            BOTH[:1],
            a_share("shard", 1, 1),
            [
                (
                    "shard 1/1: nothing wrong in this part at level full "
                    "(1 target, 1 of 1 snapshot without an error in what was judged)"
                ),
                "the verdict on the whole is that of `ckptctl validate --merge` over this report",
            ],
        ),
        (
            (BOTH[0], a_target(f"{SNAPSHOTS}/snapshot_000002", level="full", verdict="invalid")),
            a_share("shard", 2, 3),
            [
                "shard 2/3: invalid at level full (2 targets, 1 of 2 snapshots without an error in what was judged)",
                "the verdict on the whole is that of `ckptctl validate --merge` over all 3 reports, and no better than this",
            ],
        ),
        (
            BOTH,
            a_share("subset", 8, 10),
            [
                (
                    "verdict: valid at level full, as far as part 8/10 of the data tells "
                    "(2 targets, 2 of 2 snapshots without an error in what was judged)"
                ),
                JUDGED,
            ],
        ),
        (
            LEFT,
            None,
            [
                (
                    "verdict: valid at level standard, as far as the chosen rules tell "
                    "(2 targets, 2 of 2 snapshots without an error in what was judged; 1 rule left out on request)"
                ),
                JUDGED,
            ],
        ),
        (
            LEFT,
            a_share("subset", 1, 2),
            [
                (
                    "verdict: valid at level standard, as far as the chosen rules and part 1/2 of the data tell "
                    "(2 targets, 2 of 2 snapshots without an error in what was judged; 1 rule left out on request)"
                ),
                JUDGED,
            ],
        ),
    ],
)
def test_the_last_lines_carry_the_reservation(targets, share, closing):
    """A shard has no verdict on the whole; a subset and chosen rules have one of what was judged."""
    assert closing == lines(a_report(*targets, share=share))[-2:]


def test_warnings_are_not_called_failed():
    """Beside `valid` nothing failed; the JSON says of the rule what it always said."""
    outcomes = (an_outcome("MAN001"), an_outcome("MAN009", "failed"))
    warned = a_target(outcomes=outcomes, findings=(a_finding("MAN009", severity="warning"),))
    broken = a_target(outcomes=outcomes, findings=(a_finding("MAN009", severity="error"),), verdict="invalid")

    assert (
        "  1 rule passed, 0 failed, 1 with warnings, 0 skipped, 0 could not run; 2 of 2 files, 1.0 KiB of 2.0 KiB looked at"
        in lines(a_report(warned))
    )
    assert "  1 rule passed, 1 failed, 0 skipped, 0 could not run; 2 of 2 files, 1.0 KiB of 2.0 KiB looked at" in lines(
        a_report(broken)
    )


def test_what_level_full_did_not_cover_is_named_in_all():
    """The total and the main reason without `-v`, every file with it."""
    coverage = Coverage(
        files_total=2,
        files_checked=2,
        bytes_total=4096,
        bytes_checked=1024,
        unchecked=(
            Unchecked(path="a", bytes=2048, reason="no digest covers it"),
            Unchecked(path="b", bytes=1024, reason="not part of the format"),
        ),
    )
    told = lines(a_report(a_target(level="full", coverage=coverage)))
    verbose = lines(a_report(a_target(level="full", coverage=coverage)), verbose=1)

    assert "  not covered: 3.0 KiB in 2 files, 2.0 KiB of it: no digest covers it; `-v` lists it" == told[-1]
    assert 2 == sum(line.startswith("  not checked: ") for line in verbose)
    assert not [line for line in verbose if "not covered" in line]


def test_the_whole_names_the_newest_valid_snapshot():
    """By step and number, not by order; of several checkpoint directories none is newest."""
    step_10 = a_target(f"{RUN}/step_10/rollout_snapshots/snapshot_000001")
    newest = a_target(f"{RUN}/step_10/rollout_snapshots/snapshot_000003", verdict="invalid")
    bootstrap = a_target(f"{RUN}/bootstrap/rollout_snapshots/snapshot_000009")
    told = lines(a_report(step_10, newest, a_target(), bootstrap))

    assert ["verdict: invalid at level standard (4 targets, 3 of 4 snapshots valid)"] == told[-2:-1]
    assert f"newest valid snapshot: {step_10.path}" == told[-1]
    elsewhere = a_target("/other/step_1/rollout_snapshots/snapshot_000001")
    assert not [line for line in lines(a_report(elsewhere, step_10)) if line.startswith("newest")]


def test_one_cause_is_one_entry():
    """Its count, its first places, its hint once; with more words every place, and what the report does not hold."""
    places = [
        a_finding(artifact=f"resources/tools/g{n}.json", message=f"`g{n}.json`: digest differs from the manifest")
        for n in range(20)
    ]
    more = a_finding(artifact="", message="and 17 more of this kind (37 in all)", count=17, kind="more")
    report = a_report(a_target(verdict="invalid", findings=(*places, more)))
    told, verbose = lines(report), lines(report, verbose=1)

    assert ["  error[PAR026] session-file-mismatch (37 times)"] == [line for line in told if "[PAR026]" in line]
    assert 3 == sum("digest differs" in line for line in told)
    assert "    and 34 more; `--verbose` lists what the report holds" in told
    assert 1 == sum("hint:" in line for line in told)
    assert 20 == sum("digest differs" in line for line in verbose)
    assert "    and 17 more" in verbose


def test_what_was_not_looked_at_is_told_once_for_each_reason():
    """Rules and files, with `--verbose`; rules that could not run always."""
    outcomes = (
        an_outcome("DUR004", "skipped", "needs live servers"),
        an_outcome("INV006", "skipped", "belongs to level full"),
        an_outcome("DUR005", "skipped", "needs live servers"),
        an_outcome("BND005", "could_not_run", "no ledger"),
        an_outcome("BND010", "could_not_run", "no ledger"),
    )
    unchecked = tuple(Unchecked(path=name, bytes=2048, reason="tensor bytes") for name in ("a.pkl", "b.pkl"))
    coverage = WHOLE.model_copy(update={"unchecked": unchecked})
    report = a_report(a_target(verdict="incomplete", outcomes=outcomes, coverage=coverage))

    assert "  could not check [BND005] ledger-count-mismatch, [BND010] sampler-cursor-behind: no ledger" in lines(
        report
    )
    assert [
        "  not checked: tensor bytes:",
        "    a.pkl (2.0 KiB)",
        "    b.pkl (2.0 KiB)",
        "  skipped: needs live servers:",
        "    [DUR004] unshared-storage, [DUR005] pruned-last-valid-snapshot",
        "  skipped: belongs to level full:",
        "    [INV006] foreign-staged-row",
    ] == lines(report, verbose=1)[3:]


@pytest.mark.parametrize(
    ("artifact", "location", "message", "told"),
    [
        ("a/b.json", "", "`b.json`: is torn", "a/b.json: is torn"),
        ("a/b.json", "line 3", "`b.json`: is torn", "a/b.json, line 3: is torn"),
        ("b.json", "", "`b.json` is missing", "`b.json` is missing"),
        ("b.json", "schema", "`b.json` is of schema 7", "b.json, schema: `b.json` is of schema 7"),
        ("a/b.json", "", "`c.json`: is torn", "a/b.json: `c.json`: is torn"),
        ("", "", "nothing matches", "nothing matches"),
    ],
)
def test_a_name_in_place_and_message_is_said_once(artifact, location, message, told):
    """What is left says no less."""
    finding = a_finding(artifact=artifact, location=location, message=message)

    assert f"    {told}" in lines(a_report(a_target(verdict="invalid", findings=(finding,))))


def test_who_found_errors_is_told_where_to_read_about_them():
    """The rule of the first error, once; warnings alone ask nobody to do anything."""
    bad = a_target(verdict="invalid", findings=(a_finding("MAN009", severity="warning"), a_finding()))
    warned = a_target(findings=(a_finding("MAN009", severity="warning"),))

    assert "about a rule: `ckptctl validate --explain PAR026`" == lines(a_report(bad, bad))[-1]
    assert [] == [line for line in lines(a_report(warned)) if "--explain" in line]


def test_two_causes_of_one_rule_are_two_entries():
    """Another sentence is another cause; what is not listed belongs to neither."""
    findings = (
        a_finding(),
        a_finding(message="`g7_g1.a0.json`: is missing", artifact="resources/tools/g7_g1.a0.json"),
        a_finding(artifact="", message="and 5 more of this kind (7 in all)", count=5, kind="more"),
    )
    told = lines(a_report(a_target(verdict="invalid", findings=findings)))

    assert ["", "", " (5 times)"] == [line.partition("mismatch")[2] for line in told if "[PAR026]" in line]


def test_notes_are_told_beside_findings():
    """A note is one line whatever else is wrong."""
    note = a_finding("DUR002", message="`tmp_snapshot_000003`: a snapshot that is being written", artifact="")
    told = lines(a_report(a_target(verdict="invalid", findings=(a_finding(),), notes=(note, note))))

    assert "  note[DUR002] (2 times): `tmp_snapshot_000003`: a snapshot that is being written" in told
