"""How a rule gets at a file's content: the value, or the right word for why there is none.

A missing file is reported by MAN002 and a damaged container by MAN010 (which run on all of them), so a rule that merely needs
the file is *skipped because of* those. A file that another rule judges (an index, a participant manifest) is named with
`reported_by`. What could not be read, or is of a variant that this reader only recognises, makes the rule *could not run*.
"""

from __future__ import annotations

from typing import TypeVar

from ckptctl.domain.evidence import Part
from ckptctl.rules._model import CannotRunError

T = TypeVar("T")
MISSING, DAMAGED = "MAN002", "MAN010"


def value_of(part: Part[T], *reported_by: str) -> T:
    """The decoded value of a part; `reported_by` are further rules that speak of it when it is missing or damaged.

    Raises:
        CannotRunError: there is no value.
    """
    if part.value is not None and part.state == "decoded":
        return part.value
    because = (MISSING, DAMAGED, *reported_by) if part.state in {"missing", "damaged"} else ()
    raise CannotRunError(f"`{part.path}`: {part.reason}", because=because, artifact=part.path)
