"""The benchmarks are programs that people run by hand: here only that they run, on very little."""

from tests.bench.checksum_pass import bench_checksum_pass


def test_the_checksum_pass(capsys, monkeypatch):
    """It prints its ratios where no rival is installed, too."""
    monkeypatch.setenv("PATH", "")
    bench_checksum_pass(1, 1)
    told = capsys.readouterr().out

    assert "goal 0.9" in told
    assert "`validate --level full` of it (valid)" in told
    assert "blake3 package" in told
    assert "restic not installed" in told
