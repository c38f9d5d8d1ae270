"""How server code says no: an exception that becomes HTTP 409 with a code and a detail.

Which code fits is the caller's decision (participant-protocol section 13, controller-interface "Codes"); the body's
form is `http`'s.
"""

from __future__ import annotations

from typing import Any


class RefusalError(Exception):
    """A refusal with a documented code. It is an answer, not a failure of the server."""

    def __init__(self, code: str, detail: str, *, harmless: bool = False, **facts: Any) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.harmless = harmless
        """Nothing was changed: the fence returns to the entry phase even where a failure has a phase of its own."""
        self.facts = facts
        """Further fields of the error object, for example `expected_revision`."""
