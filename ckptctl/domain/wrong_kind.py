"""What to do about a name under which there is no directory where one belongs."""

from __future__ import annotations

LINKED_HINT = "replace the link by the directory itself, or name the directory it leads to"
MISPLACED_HINT = "move it away if it is no anchor; otherwise put the directory back from a copy"
