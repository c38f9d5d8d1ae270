"""The participants of the published example: one rollout, one agent, one policy model, one resources server."""

from ckptctl.domain.participant import Execution
from ckptctl.domain.participant_files import BoundaryRecord, SessionRecord
from ckptctl.formats.lineage import build_model_artifacts, encode_lineage_line
from ckptctl.formats.participant_files import build_agent_artifacts, build_resources_artifacts, continuation_rows

CAPTURE_KEY = "g7_g0-a1"


def a_boundary(**changes):
    """The boundary record of the example, with some fields changed."""
    fields = {
        "schema_version": 2,
        "rollout_id": "g7_g0",
        "attempt_index": 1,
        "boundary_index": 3,
        "turn_index": 2,
        "boundary_kind": "turn_complete",
        "pending_model": None,
        "output_items": [],
        "usage": None,
        "last_committed_model_capture_key": CAPTURE_KEY,
        "last_committed_model_call_id": "call-9",
        "resource_state_revisions": {"tools": 4},
        "agent_state": {},
        "created_at": 1790000000.5,
    }
    return BoundaryRecord(**{**fields, **changes})


def a_session(**changes):
    """The resources session of the example, with some fields changed."""
    fields = {
        "schema_version": 2,
        "rollout_id": "g7_g0",
        "attempt_index": 1,
        "state_revision": 4,
        "state": {"count": 4},
        "mutation_receipts": [],
        "created_at": 1790000000.25,
    }
    return SessionRecord(**{**fields, **changes})


def a_custody_file():
    """The lineage of the example: the boundary call and its parent, whose own parent lies under another capture key."""
    parent = {"model_call_id": "call-8", "staging_chain": ["g7_g0/call-5"], "staging_key": "g7_g0-a1/call-8"}
    boundary = {
        "model_call_id": "call-9",
        "staging_chain": ["g7_g0/call-5", "g7_g0-a1/call-8"],
        "staging_key": "g7_g0-a1/call-9",
    }
    return encode_lineage_line(parent) + encode_lineage_line(boundary)


def an_agent():
    """The agent's folder as built."""
    return build_agent_artifacts("ck-1", "policy_agent", [a_boundary()])


def a_model():
    """The policy model's folder as built."""
    served = [Execution(rollout_id="g7_g0", attempt_index=1), Execution(rollout_id="g6_g0", attempt_index=0)]
    roots = continuation_rows([a_boundary()])
    return build_model_artifacts("ck-1", "policy_model", roots, {CAPTURE_KEY: a_custody_file()}, [], served, 1)


def a_resources_server():
    """The resources server's folder as built."""
    return build_resources_artifacts("ck-1", "tools", [a_session()])
