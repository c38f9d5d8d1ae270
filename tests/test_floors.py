"""What import contracts cannot see: effects in pure code, files and functions that grew too large, forbidden names of files."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "ckptctl"
PURE = ("errors", "ports.py", "domain", "formats", "rules", "planning")
FORBIDDEN_CALLS = {"open", "print", "input", "eval", "exec", "compile", "__import__", "breakpoint"}
FORBIDDEN_ATTRIBUTES = {("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today")}
MODULE_LINES = 400
FUNCTION_LINES = 60


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def pure_modules() -> list[Path]:
    return [path for path in modules() if path.relative_to(PACKAGE).parts[0] in PURE]


@pytest.mark.parametrize("path", pure_modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_pure_floors_have_no_effects(path):
    """Floors 0 to 3 open nothing, print nothing and do not look at the clock."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
            found.append((node.lineno, node.func.id))
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and (node.value.id, node.attr) in FORBIDDEN_ATTRIBUTES
        ):
            found.append((node.lineno, node.attr))

    assert [] == found


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_modules_and_functions_stay_readable(path):
    """A module past 400 lines or a function past 60 is asking to be split."""
    text = path.read_text(encoding="utf-8")
    long_functions = [
        (node.name, node.end_lineno - node.lineno + 1)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES
    ]

    assert [] == long_functions
    assert text.count("\n") <= MODULE_LINES


def test_no_module_is_a_drawer_for_leftovers():
    """A file called utils says nothing of what is in it."""
    assert [] == [path.name for path in modules() if path.stem in {"utils", "helpers", "common", "misc"}]


def test_only_one_module_writes_to_disk():
    """Every write goes through adapters.durable: others do not open files for writing, rename or delete.

    One exception: a hook writes its verdict and metrics by itself, since it may import nothing of ours.
    """
    writers = {
        "open",
        "rename",
        "replace",
        "unlink",
        "remove",
        "rmdir",
        "mkdir",
        "makedirs",
        "link",
        "symlink",
        "truncate",
        "ftruncate",
        "write",
    }
    found = []
    for path in modules():
        if path.relative_to(PACKAGE).as_posix() in {"adapters/durable.py", "hook/record.py"}:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "os"
                and node.attr in writers - {"open"}
            ):
                found.append((str(path.relative_to(PACKAGE)), node.lineno, f"os.{node.attr}"))
            if isinstance(node, ast.Attribute) and node.attr in {"write_text", "write_bytes", "touch"}:
                found.append((str(path.relative_to(PACKAGE)), node.lineno, node.attr))

    assert [] == found
