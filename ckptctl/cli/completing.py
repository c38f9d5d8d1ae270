"""What a shell offers after a half-written command line: commands, options, their values, rule ids, names of snapshots.

Speaks the protocol of the committed scripts (`completions/`), in place of typer, and imports nothing but `os`: a key
press must not wait for a start. What words there are stands in `words.tsv`, generated from the commands themselves. Looks at
names only, reads one file at most (the configuration, for its checkpoint directory), and says nothing when anything is wrong:
then the shell completes names of files.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    Offer = tuple[str, str]  # a word and what it means

ANSWERED = ("complete_bash", "complete_zsh", "complete_fish")
VARIABLE = "_CKPTCTL_COMPLETE"
WORDS = "words.tsv"
SNAPSHOTS, TRASH = "rollout_snapshots", ".ckptctl/trash"
MOST = 200
"""Names that are offered; nobody chooses among more."""
_CONFIG_BYTES = 1 << 20


def is_asked() -> bool:
    """Whether a shell started this process to be told how a line may go on."""
    return os.environ.get(VARIABLE) in ANSWERED


def answer() -> int:
    """Write the answer for the shell that asks; returns the exit status."""
    shell = os.environ[VARIABLE].removeprefix("complete_")
    words, started = _bash_words() if shell == "bash" else _other_words()
    try:
        offers = [item for item in _offers(words, started) if item[0].startswith(started)][:MOST]
    except (OSError, ValueError):
        offers = []
    if shell == "fish" and os.environ.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
        return 0 if offers else 1
    text = {"bash": _for_bash, "zsh": _for_zsh, "fish": _for_fish}[shell](offers)
    sys.stdout.write(text)
    sys.stdout.flush()
    return 0


def _bash_words() -> tuple[list[str], str]:
    words = os.environ.get("COMP_WORDS", "").split()
    place = int(os.environ.get("COMP_CWORD", "0"))
    return words[1:place], words[place] if place < len(words) else ""


def _other_words() -> tuple[list[str], str]:
    line = os.environ.get("_TYPER_COMPLETE_ARGS", "")
    words = line.split()[1:]
    if not words or line.endswith(" "):
        return words, ""
    return words[:-1], words[-1]


def _for_bash(offers: list[Offer]) -> str:
    return "\n".join(word for word, _ in offers)


def _for_zsh(offers: list[Offer]) -> str:
    if not offers:
        return "_files"
    told = "\n".join(
        f'"{_zsh(word)}":"{_zsh(help_text)}"' if help_text else f'"{_zsh(word)}"' for word, help_text in offers
    )
    return f"_arguments '*: :(({told}))'"


def _zsh(text: str) -> str:
    for mark, escaped in (('"', '""'), ("'", "''"), ("$", "\\$"), ("`", "\\`"), (":", "\\\\:")):
        text = text.replace(mark, escaped)
    return text


def _for_fish(offers: list[Offer]) -> str:
    return "\n".join(f"{word}\t{help_text}" if help_text else word for word, help_text in offers)


def _offers(words: list[str], started: str) -> Iterator[Offer]:
    """Everything that may stand where the line ends; what does not begin as it does is left out by the caller."""
    known = read_words()
    command, option, given = _walk(known["root"], words)
    name, _, value = started.partition("=")
    if option is None and value and name in command["options"]:
        option = name
        yield from ((f"{name}={word}", told) for word, told in _values(known, command, name, given, value))
    elif option is not None:
        yield from _values(known, command, option, given, started)
    elif started.startswith("-"):
        yield from ((word, item["help"]) for word, item in command["options"].items())
    elif command["commands"] and given["arguments"]:
        return
    elif command["commands"]:
        yield from ((word, item["help"]) for word, item in command["commands"].items())
    else:
        place = min(len(given["arguments"]), len(command["arguments"]) - 1)
        if place >= 0:
            argument = command["arguments"][place]
            yield from ((word, "") for word in argument["choices"])
            yield from _named(argument["takes"], given, started)


def read_words() -> dict[str, Any]:
    """The table: `root`, the commands with their options and arguments, and `rules`, with their names."""
    with open(os.path.join(os.path.dirname(__file__), WORDS), encoding="ascii") as file:
        lines = [line.split("\t") for line in file.read().split("\n") if line]
    known: dict[str, Any] = {"rules": {}}
    command: dict[str, Any] = {}
    for kind, name, takes, choices, told in lines:
        if kind == "rule":
            known["rules"][name] = told
        elif kind == "command":
            command = {"help": told, "options": {}, "arguments": [], "commands": {}}
            above, _, last = f"root {name}".rstrip().rpartition(" ")
            _at(known, above)[last] = command
        elif kind == "option":
            command["options"][name] = {"takes": takes, "choices": choices.split(), "help": told}
        else:
            command["arguments"].append({"takes": takes, "choices": choices.split()})
    return known


def _at(known: dict[str, Any], path: str) -> dict[str, Any]:
    """The commands below the command of these words."""
    here: dict[str, Any] = known
    for word in path.split():
        here = here[word]["commands"]
    return here


def _walk(command: dict[str, Any], words: list[str]) -> tuple[dict[str, Any], str | None, dict[str, Any]]:
    """The command that the words lead to, the option whose value is awaited, and what was given so far."""
    given: dict[str, Any] = {"options": {}, "arguments": []}
    awaited: str | None = None
    for word in words:
        name, mark, value = word.partition("=")
        if awaited is not None:
            given["options"][awaited] = word
            awaited = None
        elif word.startswith("-"):
            takes = command["options"].get(name, {"takes": ""})["takes"]
            if takes and mark:
                given["options"][name] = value
            elif takes:
                awaited = name
        elif word in command["commands"]:
            command = {**command["commands"][word]}
        else:
            given["arguments"].append(word)
    return command, awaited, given


def _values(
    known: dict[str, Any], command: dict[str, Any], option: str, given: dict[str, Any], started: str
) -> Iterator[Offer]:
    item = command["options"][option]
    yield from ((word, "") for word in item["choices"])
    if item["takes"] == "RULE":
        yield from known["rules"].items()
    elif option == "--undelete":
        yield from ((name, "") for name in sorted(_listed(os.path.join(_root(given), TRASH))))
    else:
        yield from _named(item["takes"], given, started)


def _named(takes: str, given: dict[str, Any], started: str) -> Iterator[Offer]:
    """Names that lie in a checkpoint directory."""
    if takes == "SNAPSHOT":
        root = _root(given)
        yield from ((f"{anchor}/{name}", "") for anchor, name in _snapshots(root, "snapshot_"))
    elif takes in ("PATH", "STAGED"):
        prefix = "tmp_snapshot_" if takes == "STAGED" else "snapshot_"
        root = _above(started)
        for anchor, name in _snapshots(root or ".", prefix):
            yield os.path.join(root, anchor, SNAPSHOTS, name), ""


def _above(started: str) -> str:
    """The checkpoint directory in which a half-written path lies, or that it names; with its slash."""
    parts = started.split("/")
    for place, part in enumerate(parts[:-1]):
        if _is_anchor(part):
            return "/".join(parts[:place]) + "/" if place else ""
    return "/".join(parts[:-1]) + "/" if len(parts) > 1 else ""


def _snapshots(root: str, prefix: str) -> Iterator[tuple[str, str]]:
    """Anchor and name of whatever lies beside snapshots under a prefix, the newest first."""
    for anchor in sorted(filter(_is_anchor, _listed(root)), key=_number, reverse=True):
        for name in sorted(_listed(os.path.join(root, anchor, SNAPSHOTS)), reverse=True):
            if name.startswith(prefix) and name.removeprefix(prefix).isdigit():
                yield anchor, name


def _is_anchor(name: str) -> bool:
    return name == "bootstrap" or (name.startswith("step_") and name.removeprefix("step_").isdigit())


def _number(anchor: str) -> int:
    return int(anchor.removeprefix("step_")) if anchor != "bootstrap" else -1


def _listed(folder: str) -> list[str]:
    """Names in a folder that are plain words to every shell."""
    try:
        return [name for name in os.listdir(folder) if all(c.isalnum() or c in "._-" for c in name)]
    except OSError:
        return []


def _root(given: dict[str, Any]) -> str:
    """The checkpoint directory that the line names: as PATH, or in its configuration."""
    if given["arguments"]:
        return str(given["arguments"][0])
    config = given["options"].get("--config") or os.environ.get("CKPTCTL_CONFIG")
    return _configured(config) if config else "."


def _configured(path: str) -> str:
    """`checkpointing.checkpoint_dir` of a configuration, without a YAML parser: what it cannot read gives no names."""
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = file.read(_CONFIG_BYTES).splitlines()
    for line in lines:
        _, mark, rest = line.partition("checkpoint_dir:")
        if mark:
            found = rest.strip().split(",")[0].rstrip("}").split(" #")[0].strip().strip("\"'")
            return found if os.path.isabs(found) else os.path.join(os.getcwd(), found)
    return ""
