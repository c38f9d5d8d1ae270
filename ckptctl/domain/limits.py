"""Every limit on what is read from files and servers, in one place.

A limit is far above anything a real run writes and far below what would hurt the reader. Exceeding one is a defect of the
file ("exceeds the limit of ..."), never a crash.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds for one validation. Units are in the names."""

    memory_bytes: int = 540 << 20
    """What a validation may take beyond what the process held when it began."""
    json_document_bytes: int = 48 << 20
    """Manifests, metadata, training info: whole JSON documents."""
    json_depth: int = 64
    json_values: int = 1_000_000
    """Values of one document (keys not counted), which bounds the memory that it takes once decoded."""
    json_integer_digits: int = 19
    """Longest integer literal taken from JSON (64-bit range)."""
    checksums_bytes: int = 64 << 20
    """The checksum file: about 350,000 files."""
    checksum_values: int = 1_100_000
    """As `json_values`, for the checksum file: three a file."""
    json_line_bytes: int = 8 << 20
    """One line of an index, a lineage file or a record."""
    index_bytes: int = 2 << 30
    yaml_bytes: int = 8 << 20
    yaml_nodes: int = 200_000
    yaml_depth: int = 64
    archive_bytes: int = 1 << 30
    """One uncompressed tar shard (the format allows 64 MiB, a single larger member gets its own)."""
    archive_member_bytes: int = 64 << 20
    lineage_rows: int = 200_000
    """Model calls of one attempt."""
    archive_members: int = 65_536
    record_bytes: int = 48 << 20
    """One agent boundary record or resources session file."""
    zip_entries: int = 100_000
    """A reserve of prompts has an entry per tensor."""
    zip_pickle_bytes: int = 96 << 20
    """`data.pkl` inside a torch zip."""
    sidecar_items: int = 4_000_000
    """As `pickle_items`, for such a `data.pkl`: 200,000 attempts of a ledger."""
    pickle_depth: int = 64
    pickle_items: int = 60_000_000
    """Opcodes that produce a value, over one pickle."""
    pickle_memo: int = 60_000_000
    pickle_text_bytes: int = 16 << 20
    pickle_skip_bytes: int = 256
    """Byte strings above this become (offset, length) and are skipped."""
    staged_row_tokens: int = 4 << 20
    """Tokens of one model call; three columns and their copies are in memory while it is digested."""
    staged_text_bytes: int = 4096
    staged_extras_bytes: int = 16 << 20
    staged_routes_bytes: int = 256 << 20
    staged_chain_tokens: int = 16 << 20
    """Tokens from the root of a call chain to one of its calls."""
    pack_members: int = 350_000
    """Names in a pack: as many as a checksum file holds."""
    pack_names_bytes: int = 64 << 20
    """All names of a packed snapshot together."""
    pack_frames: int = 4_000_000
    pack_frame_bytes: int = 16 << 20
    """Uncompressed bytes of one frame of a seekable pack; ckptctl writes 1 MiB."""
    pack_memory_bytes: int = 128 << 20
    """Whole content of a pack without a seek table, which is held in memory."""
    pack_window_bytes: int = 32 << 20
    """Window that such a pack may ask its reader to keep."""
    tree_entries: int = 350_000
    tree_path_bytes: int = 48 << 20
    """All paths of a tree together."""
    tree_depth: int = 32
    name_bytes: int = 512
    findings_shown: int = 20
    """Findings of one rule that a report lists; the rest is counted."""
    reply_bytes: int = 64 << 20
    """One HTTP reply."""

    def for_sidecar(self) -> Limits:
        """The limits for the pickle of a sidecar: its values are held three times, as nodes, plain, and as what they mean."""
        return replace(self, pickle_items=min(self.pickle_items, self.sidecar_items))


DEFAULT_LIMITS = Limits()
