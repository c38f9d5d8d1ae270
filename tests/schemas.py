"""Whether a JSON text is what a committed schema promises."""

import json
from functools import cache
from pathlib import Path

from jsonschema import Draft202012Validator

SCHEMAS = Path(__file__).resolve().parent.parent / "schemas"


@cache
def validator(name: str) -> Draft202012Validator:
    """The committed schema of that file name, itself checked."""
    schema = json.loads((SCHEMAS / name).read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def problems(text: str, name: str) -> list[str]:
    """Where the text is not what the schema promises; empty when it is."""
    errors = validator(name).iter_errors(json.loads(text))
    return [f"{error.json_path}: {error.message[:200]}" for error in errors]
