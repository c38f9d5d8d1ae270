"""Arbitrary contents of the documents that a snapshot holds: whatever a writer may be given."""

import base64
import string

from hypothesis import strategies as st

from ckptctl.domain.manifest import (
    AgentPayload,
    ArtifactReference,
    GymCheckpoint,
    ModelPayload,
    ParticipantEntry,
    ParticipantIdentity,
    ParticipantManifestReference,
    ResourcesPayload,
    SnapshotManifest,
)
from ckptctl.domain.participant import Execution
from ckptctl.domain.participant_files import BoundaryRecord, MutationReceipt, PendingModel, SessionRecord

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
IDS = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=12).filter(
    lambda text: text[0].isalnum()
)
COUNTS = st.integers(0, 10**18)
SMALL = st.integers(0, 30)
DIGESTS = st.binary(min_size=32, max_size=32).map(bytes.hex)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
NUMBERS = st.one_of(st.integers(-(10**18), 10**18), FLOATS)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=5,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=2)
PATHS = st.lists(IDS, min_size=1, max_size=3).map("/".join)
AGENT_NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)

REFERENCES = st.builds(
    ArtifactReference, schema_version=st.just(1), relative_path=PATHS, sha256=DIGESTS, records=COUNTS, bytes=COUNTS
)


@st.composite
def entries(draw):
    """One participant, its payload that of its component."""
    component = draw(st.sampled_from(["responses_api_agents", "responses_api_models", "resources_servers"]))
    name = draw(AGENT_NAMES if component == "responses_api_agents" else IDS)
    identity = ParticipantIdentity(server_name=draw(IDS), component=component, participant_name=name)
    digest = draw(DIGESTS)
    payload = draw(
        {
            "responses_api_agents": st.builds(
                AgentPayload, records=COUNTS, manifest_digest=st.just(digest), continuation_index=REFERENCES
            ),
            "responses_api_models": st.builds(
                ModelPayload,
                rollouts=COUNTS,
                rows=COUNTS,
                excluded_tombstoned=COUNTS,
                excluded_inactive=COUNTS,
                manifest_digest=st.just(digest),
                storage_reference_index=REFERENCES,
                generation_cut_records=st.none(),
            ),
            "resources_servers": st.builds(ResourcesPayload, sessions=COUNTS, manifest_digest=st.just(digest)),
        }[component]
    )
    reference = ParticipantManifestReference(participant=identity, relative_path=draw(PATHS), manifest_digest=digest)
    return ParticipantEntry(participant=identity, payload=payload, manifest=reference)


@st.composite
def manifests(draw):
    """An outer manifest of schema 3 or 4, with or without Gym state."""
    schema = draw(st.sampled_from([3, 4]))
    has_gym = schema == 4 and draw(st.booleans())
    gym = (
        GymCheckpoint(checkpoint_id=draw(IDS), participants=tuple(draw(st.lists(entries(), max_size=4))))
        if has_gym
        else None
    )
    return SnapshotManifest(
        schema_version=schema,
        base_train_step=draw(COUNTS),
        trainer_version=draw(COUNTS),
        current_epoch=draw(COUNTS),
        sampler_dispatch_index=draw(st.integers(-1, 10**18)),
        mutation_version=draw(COUNTS),
        rolled_back_train_group_count=draw(COUNTS),
        bootstrap_fingerprint=draw(st.none() | DIGESTS),
        gym_topology_fingerprint=draw(st.none() | DIGESTS) if schema == 4 else None,
        gym_checkpoint=gym,
    )


@st.composite
def boundaries(draw):
    """A boundary record: with or without a committed call, with or without a pending response."""
    is_pending = draw(st.booleans())
    pending = draw(
        st.builds(
            PendingModel,
            model_call_id=IDS,
            response=OBJECTS,
            model_server_cookies=st.dictionaries(TEXTS, TEXTS, max_size=2),
            usage=st.none() | OBJECTS,
            pending_action_cursor=SMALL,
            resource_request_id=st.none() | TEXTS,
        )
    )
    rollout, attempt = draw(IDS), draw(SMALL)
    has_call = draw(st.booleans())
    return BoundaryRecord(
        schema_version=draw(st.sampled_from([1, 2])),
        rollout_id=rollout,
        attempt_index=attempt,
        boundary_index=draw(COUNTS),
        turn_index=draw(COUNTS),
        boundary_kind="pending_model" if is_pending else "turn_complete",
        pending_model=pending if is_pending else None,
        output_items=draw(st.lists(OBJECTS, max_size=3)),
        usage=draw(st.none() | OBJECTS),
        last_committed_model_capture_key=f"{rollout}-a{attempt}" if has_call else None,
        last_committed_model_call_id=draw(TEXTS.filter(bool)) if has_call else None,
        resource_state_revisions=draw(st.dictionaries(TEXTS, COUNTS, max_size=3)),
        agent_state=draw(OBJECTS),
        created_at=draw(NUMBERS),
    )


RECEIPTS = st.builds(
    MutationReceipt,
    request_id=TEXTS.filter(bool),
    expected_revision=st.none() | COUNTS,
    input_digest=DIGESTS,
    status=st.integers(100, 599),
    headers=st.lists(st.lists(TEXTS, min_size=2, max_size=2), max_size=2),
    body_base64=st.binary(max_size=6).map(lambda data: base64.b64encode(data).decode()),
    resulting_revision=st.none() | COUNTS,
)
SESSIONS = st.builds(
    SessionRecord,
    schema_version=st.sampled_from([1, 2]),
    rollout_id=IDS,
    attempt_index=SMALL,
    state_revision=COUNTS,
    state=OBJECTS,
    mutation_receipts=st.lists(RECEIPTS, max_size=3),
    created_at=NUMBERS,
)
EXECUTIONS = st.builds(Execution, rollout_id=IDS, attempt_index=SMALL)


def by_attempt(items):
    """One item per attempt."""
    return list({(item.rollout_id, item.attempt_index): item for item in items}.values())
