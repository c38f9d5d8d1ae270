"""What is generated is committed as generated, and nothing lies beside it. Golden answers have a test of their own (`tests/cli/test_golden.py`)."""

from tests.regenerate import (
    REPOSITORY,
    command_paths,
    completions,
    difference,
    readme,
    samples,
    schemas,
    strangers,
    wanted_files,
    words,
)


def differing(wanted):
    return [text for path, data in wanted.items() if (text := difference(path, data))]


def test_schemas_are_as_committed():
    """One schema for each document, and the controller interface."""
    assert [] == differing(schemas())


def test_completions_are_as_committed():
    """The stubs for bash, zsh and fish."""
    assert [] == differing(completions())


def test_words_of_completions_are_as_committed():
    """The table of commands, options and rules that a shell's key press is answered from."""
    assert [] == differing(words())


def test_samples_are_frozen():
    """The builders still write, byte for byte, what was committed; a change of a writer is a decision."""
    assert [] == differing(samples())


def test_readme_is_as_committed():
    """Help of each command, rules and exit statuses."""
    assert [] == differing(readme())


def test_readme_mentions_every_command():
    """The walk over the commands sees all of them: the root, seven commands and those of `sim`."""
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    paths = command_paths()

    assert len(paths) >= 17
    assert [] == [words for words in paths if f"\n`{' '.join(('ckptctl', *words))}`\n" not in text]


def test_a_difference_and_a_stranger_are_told(tmp_path, monkeypatch):
    """The comparison goes both ways: changed, missing and superfluous files all show."""
    import tests.regenerate as generator

    for name in ("schemas", "completions", "tests/samples"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "schemas" / "one.json").write_text("{}\n")
    (tmp_path / "tests/samples/stray").write_text("")
    monkeypatch.setattr(generator, "REPOSITORY", tmp_path)
    monkeypatch.setattr(generator, "SAMPLES", tmp_path / "tests/samples")
    monkeypatch.setattr(generator, "GOLDEN", tmp_path / "tests/cli/golden")
    monkeypatch.setattr(generator, "cases", list)
    wanted = {tmp_path / "schemas" / "one.json": b"[]\n", tmp_path / "schemas" / "two.json": b"{}\n"}
    told = "\n".join(generator.differences(wanted))

    assert "-{}\n+[]" in told
    assert "two.json (generated)" in told
    assert "tests/samples/stray: nothing generates this file" in told


def test_nothing_lies_beside_what_is_generated():
    """No schema, completion or sample that nothing generates."""
    names = {*schemas(), *completions(), *samples()}

    assert [] == [path for path in strangers(dict.fromkeys(names, b"")) if "golden" not in path.parts]
    assert callable(wanted_files)
