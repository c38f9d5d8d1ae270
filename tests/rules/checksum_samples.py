"""Samples of the SUM rules: a snapshot as ckptctl published it, and what may become of it afterwards."""

from dataclasses import replace

from ckptctl.domain.checksums import FileDigest, Publication, PublicationFacts
from ckptctl.domain.evidence import Part, TreeEntry
from ckptctl.domain.finding import Defect
from ckptctl.domain.ids import CHECKSUMS_FILE
from tests.edits import APPEND, DROP
from tests.rules.samples import bad, good

PUBLISHED = {"base": "published snapshot"}
FULL = {"level": "full"}
RULES = tuple(f"SUM{number:03d}" for number in range(1, 10))
SESSION = "resources/tools/g7_g0.a1.json"
RESERVE = "replacement_reserve.pt"
OTHER_DIGEST = "ab" * 32

for rule in RULES:
    good(rule, "as it was published", **PUBLISHED)
    good(rule, "as it was published, every byte read", **PUBLISHED, facts=FULL)
good("SUM008", "a snapshot that NeMo-RL wrote itself")


def entries(change):
    """An edit of evidence: the tree, changed entry by entry."""
    return {"tree": lambda tree: tuple(found for entry in tree if (found := change(entry)) is not None)}


# --- the file itself ---

bad(
    "SUM001",
    "a blank more",
    "not written in its one byte form",
    **PUBLISHED,
    evidence={
        "checksums": lambda part: Part(
            part.path, "damaged", None, (Defect("is not written in its one byte form", "line 3"),), 401
        ),
        "publication": PublicationFacts(),
    },
    artifact=CHECKSUMS_FILE,
)
bad(
    "SUM001",
    "another own digest",
    "does not have the digest that it says of itself",
    **PUBLISHED,
    evidence={
        "checksums": lambda part: Part(
            part.path, "damaged", None, (Defect("does not have the digest that it says of itself", "blake3"),), 400
        ),
        "publication": PublicationFacts(),
    },
    artifact=CHECKSUMS_FILE,
)
bad(
    "SUM002",
    "the checksum file of another snapshot",
    "`ck-other`",
    **PUBLISHED,
    evidence={"checksums value checkpoint_id": "ck-other"},
    artifact=CHECKSUMS_FILE,
)
good("SUM002", "a snapshot without Gym state", base="published snapshot", world={"with_gym": False})
bad(
    "SUM007",
    "the checksum file is gone",
    "is gone: transaction `000007-snapshot`",
    **PUBLISHED,
    evidence={
        "checksums": lambda part: Part(part.path, "missing"),
        "digests": lambda found: {path: item for path, item in found.items() if path != CHECKSUMS_FILE},
        **entries(lambda entry: None if entry.path == CHECKSUMS_FILE else entry),
    },
    artifact=CHECKSUMS_FILE,
)
bad(
    "SUM007",
    "another checksum file, sound in itself",
    "is not the file that transaction `000007-snapshot`",
    **PUBLISHED,
    evidence={f"digests {CHECKSUMS_FILE}": lambda found: replace(found, blake3=OTHER_DIGEST)},
    artifact=CHECKSUMS_FILE,
)

# --- the name ---

HERE = Publication("000009-snapshot", "ck-other", OTHER_DIGEST, "step_3/rollout_snapshots/snapshot_000002")
THERE = Publication("000007-snapshot", "ck-7", OTHER_DIGEST, "step_3/rollout_snapshots/snapshot_000001")
bad(
    "SUM009",
    "two snapshots exchanged",
    "`000007-snapshot` published this checkpoint as `step_3/rollout_snapshots/snapshot_000001`, not under this name; "
    "under this name, `000009-snapshot` published checkpoint `ck-other`",
    **PUBLISHED,
    evidence={"publication": PublicationFacts(of_name=HERE, elsewhere=THERE)},
)
bad(
    "SUM009",
    "a snapshot under a number that was never published",
    "published this checkpoint as `step_3/rollout_snapshots/snapshot_000001`",
    **PUBLISHED,
    evidence={"publication": PublicationFacts(elsewhere=THERE)},
)
bad(
    "SUM009",
    "a snapshot that no journal knows, under a name that one knows",
    "under this name, transaction `000009-snapshot` published another",
    **PUBLISHED,
    evidence={"publication": PublicationFacts(of_name=HERE)},
    artifact="manifest.json",
    is_warning=True,
)

# --- the other files ---

bad(
    "SUM003",
    "a file that nothing else needs is gone",
    f"`{RESERVE}` is gone",
    **PUBLISHED,
    evidence={
        "checksums value files": lambda files: {
            **files,
            RESERVE: next(iter(files.values())).model_copy(update={"bytes": 9}),
        }
    },
    artifact=RESERVE,
)
bad(
    "SUM004",
    "a file that came later",
    "`notes.txt` was not there",
    **PUBLISHED,
    evidence={"tree": APPEND(TreeEntry("notes.txt", "file", 9))},
    artifact="notes.txt",
    also=("MAN009",),
)
bad(
    "SUM005",
    "a file that was cut",
    f"`{SESSION}` has another size",
    **PUBLISHED,
    evidence=entries(lambda entry: replace(entry, size_bytes=3) if entry.path == SESSION else entry),
    artifact=SESSION,
)
bad(
    "SUM006",
    "one byte of a file",
    f"`{SESSION}` has another content",
    **PUBLISHED,
    evidence={f"digests {SESSION}": lambda found: replace(found, blake3=OTHER_DIGEST)},
    artifact=SESSION,
)
good("SUM006", "files that this level does not read", **PUBLISHED, evidence={f"digests {SESSION}": DROP})
bad(
    "SUM008",
    "a file that was written to meanwhile",
    f"`{SESSION}` changed while it was read",
    **PUBLISHED,
    evidence={f"digests {SESSION}": FileDigest(SESSION, 3, changed="it was written to while it was being read")},
    artifact=SESSION,
)
bad(
    "SUM008",
    "a file of a snapshot without a checksum file that became longer",
    f"`{SESSION}` changed while it was read",
    facts={
        "digests": {SESSION: FileDigest(SESSION, 3, changed="it had 3 bytes when it was listed and 4 when it was read")}
    },
    artifact=SESSION,
)
