"""Inputs that once got no clean answer, by reader. `test_fuzz.py` reads each again.

Each is what the reader's `wrap` is put around. What belongs here: whatever the fuzzer finds, made as small as it can be, with a word on what went wrong.
"""

from __future__ import annotations

from ckptctl.formats.torch_zip import write_torch_zip

FOUND: tuple[tuple[str, str, bytes], ...] = (
    ("a control character in the name of a global", "ledger", b"\x80\x02cos\x0c\nsys\x00tem\n."),
    ("a control character in the name of a zip entry", "dataloader", write_torch_zip(b"\x80\x02}.", {"\x1b[31m": b""})),
)
