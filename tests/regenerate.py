"""Writes everything that is generated and committed; `--check` compares both ways and changes nothing.

What: schemas/, completions/, the frozen samples (tests/samples/), golden outputs (tests/cli/golden/), and the README's blocks (help of
each command, rule catalogue, exit statuses).
"""

import difflib
import json
import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import get_args

from tests.command_line import run
from tests.goldens import GOLDEN, SAMPLES, cases, golden_files
from tests.sample_list import sample_files

REPOSITORY = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- generated: {} -->", "<!-- end of generated: {} -->"
SHOWN_LINES = 40


def schemas() -> dict[Path, bytes]:
    """One JSON schema for each document that ckptctl promises, and the controller interface as OpenAPI."""
    from tests.schema_list import openapi, schema_documents

    documents = {**schema_documents(), "controller-openapi.json": openapi()}
    return {REPOSITORY / "schemas" / name: pretty(document).encode() for name, document in documents.items()}


def pretty(document: object) -> str:
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=True) + "\n"


def completions() -> dict[Path, bytes]:
    """The stubs that call the program back."""
    from typer.completion import get_completion_script

    scripts = {
        shell: get_completion_script(prog_name="ckptctl", complete_var="_CKPTCTL_COMPLETE", shell=shell)
        for shell in ("bash", "zsh", "fish")
    }
    return {
        REPOSITORY / "completions" / f"ckptctl.{shell}": f"{script}\n".encode() for shell, script in scripts.items()
    }


def words() -> dict[Path, bytes]:
    """What may be typed: the table that completions are answered from, without starting the commands."""
    import typer

    from ckptctl.cli.app import app
    from ckptctl.rules import ALL_RULES

    rules = {rule.id: rule.name for rule in ALL_RULES}
    families = {rule_id[:3]: "the whole family" for rule_id in rules}
    lines = [*words_of(typer.main.get_command(app), ""), *(("rule", *item) for item in {**families, **rules}.items())]
    told = [(line[0], line[1], "", "", line[2]) if len(line) == 3 else line for line in lines]
    table = "".join("\t".join(line) + "\n" for line in told)
    return {REPOSITORY / "ckptctl" / "cli" / "words.tsv": table.encode("ascii")}


def words_of(command, path: str) -> list[tuple[str, ...]]:
    """One command as lines: itself, its options and their values, its arguments, its commands."""
    lines: list[tuple[str, ...]] = [("command", path, short(command.get_short_help_str(200)))]
    for parameter in command.params:
        choices = " ".join(choices_of(parameter.type_descriptor.annotation))
        if parameter.param_type_name == "argument":
            lines.append(("argument", "", parameter.metavar or "", choices, ""))
            continue
        is_flag = getattr(parameter, "is_flag", False) or getattr(parameter, "count", False)
        takes = "" if is_flag else parameter.metavar or ("CHOICE" if choices else "VALUE")
        names = (*parameter.opts, *parameter.secondary_opts)
        lines += [("option", name, takes, choices, short(parameter.help or "")) for name in names]
    lines.append(("option", "--help", "", "", "Show help and exit"))
    for name, inner in getattr(command, "commands", {}).items():
        lines += words_of(inner, f"{path} {name}".strip()) if not inner.hidden else []
    return lines


def choices_of(annotation: object) -> list[str]:
    """The values of an enumeration, or of a list of them."""
    kind = next(iter(get_args(annotation)), annotation)
    return [str(item.value) for item in kind] if isinstance(kind, type) and issubclass(kind, Enum) else []


def short(text: str) -> str:
    """The first sentence, as a hint beside a word."""
    return " ".join(text.split()).partition(". ")[0].rstrip(".")


def samples() -> dict[Path, bytes]:
    """The frozen samples."""
    return {SAMPLES / name: data for name, data in sample_files().items()}


def goldens() -> dict[Path, bytes]:
    """What the command lines of the golden cases answer."""
    return {path: text.encode() for path, text in golden_files().items()}


def help_texts() -> str:
    """Every command's help, as it prints it."""
    blocks = []
    for words in command_paths():
        shown = run(*words, "--help")
        assert shown.status == 0, (words, shown.stderr)
        blocks.append(f"`{' '.join(('ckptctl', *words))}`\n\n```text\n{shown.stdout.strip()}\n```\n")
    return "\n".join(blocks)


def command_paths() -> list[tuple[str, ...]]:
    """The root, every command and every command of `sim`."""
    import typer

    from ckptctl.cli.app import app

    root = typer.main.get_command(app)
    paths: list[tuple[str, ...]] = [()]
    for name, command in root.commands.items():
        paths.append((name,))
        paths += [(name, inner) for inner in getattr(command, "commands", {})]
    return paths


def readme() -> dict[Path, bytes]:
    """The README with its generated blocks filled."""
    from ckptctl.render.catalogue import catalogue_markdown, exit_codes_markdown

    path = REPOSITORY / "README.md"
    text = path.read_text(encoding="utf-8")
    producers: dict[str, Callable[[], str]] = {
        "help": help_texts,
        "rules": catalogue_markdown,
        "exit statuses": exit_codes_markdown,
    }
    for name, produce in producers.items():
        begin, end = BEGIN.format(name), END.format(name)
        assert begin in text, f"README.md lacks {begin}"
        assert end in text, f"README.md lacks {end}"
        head, rest = text.split(begin, 1)
        tail = rest.split(end, 1)[1]
        text = f"{head}{begin}\n\n{produce().strip()}\n\n{end}{tail}"
    return {path: text.encode()}


def wanted_files() -> dict[Path, bytes]:
    """Everything that is generated."""
    return {**schemas(), **completions(), **words(), **samples(), **readme(), **goldens()}


def strangers(wanted: dict[Path, bytes]) -> list[Path]:
    """Files in generated folders that nothing generates."""
    found = [path for folder in ("schemas", "completions") for path in (REPOSITORY / folder).iterdir()]
    found += SAMPLES.rglob("*")
    by_hand = {case / name for case in cases() for name in ("args", "env")}
    found += [path for path in GOLDEN.rglob("*") if path not in by_hand]
    return sorted(path for path in found if path.is_file() and path not in wanted)


def difference(path: Path, wanted: bytes) -> str:
    """What differs between the committed and the generated file; empty when nothing does."""
    found = path.read_bytes() if path.exists() else b""
    if found == wanted:
        return ""
    name = path.relative_to(REPOSITORY)
    lines = difflib.unified_diff(
        found.decode("utf-8", "backslashreplace").splitlines(),
        wanted.decode("utf-8", "backslashreplace").splitlines(),
        f"{name} (committed)",
        f"{name} (generated)",
        lineterm="",
        n=1,
    )
    return "\n".join([line[:200] for line in lines][:SHOWN_LINES]) or f"{name}: differs in line ends"


def differences(wanted: dict[Path, bytes]) -> list[str]:
    """Every generated file that is not as committed, and every committed one that nothing generates."""
    told = [text for path, data in wanted.items() if (text := difference(path, data))]
    return [*told, *(f"{path.relative_to(REPOSITORY)}: nothing generates this file" for path in strangers(wanted))]


def check() -> int:
    wanted = wanted_files()
    told = differences(wanted)
    for text in told:
        print(text)
    ending = f"{len(told)} differ; run `make generate`" if told else "all as committed"
    print(f"generated files: {len(wanted)} compared, {ending}")
    return 1 if told else 0


def write() -> int:
    """Write what is generated. Samples first: goldens are answers about them."""
    wanted: dict[Path, bytes] = {}
    for produce in (samples, schemas, completions, words, readme, goldens):
        made = produce()
        wanted.update(made)
        for path, data in made.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.read_bytes() != data:
                path.write_bytes(data)
                print(f"written: {path.relative_to(REPOSITORY)}")
    for path in strangers(wanted):
        path.unlink()
        print(f"deleted: {path.relative_to(REPOSITORY)}")
    return 0


def main() -> int:
    """The command line: nothing, or `--check`."""
    return check() if "--check" in sys.argv[1:] else write()


if __name__ == "__main__":
    sys.exit(main())
