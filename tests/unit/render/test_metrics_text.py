"""Prometheus' own parser reads what is written, and finds in it what was told."""

from prometheus_client.parser import text_string_to_metric_families

from ckptctl.domain.metrics import CollectedFacts, DirectoryFacts, RoundFacts, RunFacts, SeenSnapshot
from ckptctl.render.metrics_text import HELP, metrics_text

OLD = SeenSnapshot("step_3/rollout_snapshots/snapshot_000001", "step_3", "valid", "quick", 1000.0, 500.0, 70)
NEW = SeenSnapshot("step_3/rollout_snapshots/snapshot_000002", "step_3", "invalid", "full", 1400.5, None, 30)


def a_run(**changes) -> RunFacts:
    facts = {"command": "snapshot", "version": "1", "exit_status": 0, "ended_at_s": 1500.0, "seconds": 2.5}
    return RunFacts(**{**facts, **changes})


def parsed(run: RunFacts) -> dict[str, list[tuple[dict, float]]]:
    """Metric -> its samples: (labels without those that all have, value)."""
    found: dict = {}
    for family in text_string_to_metric_families(metrics_text(run)):
        assert "gauge" == family.type
        assert family.documentation
        for sample in family.samples:
            labels = {key: text for key, text in sample.labels.items() if key not in {"command", "checkpoint_dir"}}
            found.setdefault(sample.name, []).append((labels, sample.value))
    return found


def test_every_metric_has_its_place():
    """A run with everything in it writes each of the promised names, and no other."""
    directory = DirectoryFacts(
        "/run",
        snapshots=(OLD, NEW),
        sizes_bytes={"trash": 5},
        unfinished="000004-snapshot",
        admission_closed_s=0.25,
        is_release_pending=True,
        may_be_closed=True,
        is_locked=False,
    )
    whole = a_run(
        verdict="valid",
        rounds=RoundFacts({"published": 2}, 1, 3, 120.0),
        collected=CollectedFacts({"moved": 1}, {"moved": 30}),
        directories=(directory,),
    )
    found = parsed(whole)

    # What is not known is not told: the age of the newest one, whose time lies in the future.
    assert set(HELP) - {"ckptctl_newest_published_snapshot_age_seconds"} == set(found)
    assert [({}, 1400.5)] == found["ckptctl_newest_published_snapshot_timestamp_seconds"]
    assert [({}, 500.0)] == found["ckptctl_newest_valid_snapshot_age_seconds"]
    assert ({"verdict": "invalid"}, 1.0) in found["ckptctl_snapshots"]
    assert [({"kind": "trash"}, 5.0)] == found["ckptctl_bytes"]
    assert [({}, 1.0)] == found["ckptctl_unfinished_transaction"]


def test_nothing_is_said_of_what_could_not_be_looked_at():
    """A directory that is out of reach has one sample, which says so; zeros would read as facts."""
    found = parsed(a_run(exit_status=32, error_code="storage", directories=(DirectoryFacts("/run", obstacle="EIO"),)))

    assert [({}, 0.0)] == found["ckptctl_directory_readable"]
    assert [({"outcome": "", "error": "storage", "cause": ""}, 1.0)] == found["ckptctl_last_run_info"]
    assert [({}, 32.0)] == found["ckptctl_last_run_exit_status"]
    assert not [name for name in found if "snapshot" in name]


def test_values_of_labels_are_escaped():
    """A name with quotes, backslashes, line feeds, escapes and bytes that are no text comes back as it was made safe."""
    hostile = 'a"b\\c\nd\x1b[31m\udcff{}='
    text = metrics_text(a_run(directories=(DirectoryFacts(hostile),)))
    [family] = [item for item in text_string_to_metric_families(text) if item.name == "ckptctl_directory_readable"]

    assert 'a"b\\c\nd\\x1b[31m\\udcff{}=' == family.samples[0].labels["checkpoint_dir"]
    assert text.encode()
    assert not [line for line in text.split("\n") if line and not line.startswith(("#", "ckptctl_"))]


def test_several_directories_are_told_apart():
    """`validate A B`: the run is told once, each directory with its own label."""
    text = metrics_text(a_run(directories=(DirectoryFacts("/a"), DirectoryFacts("/b"))))

    assert 1 == text.count("\nckptctl_last_run_exit_status{")
    assert 'ckptctl_directory_readable{command="snapshot",checkpoint_dir="/b"} 1' in text
