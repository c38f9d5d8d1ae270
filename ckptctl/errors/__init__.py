"""Every error ckptctl raises on purpose, and every exit status.

An error here is about the *environment* or the *request*: what was asked, what could not be reached, what was refused. What is
wrong *inside* a snapshot is a finding (a returned value, see `ckptctl.domain.finding`); what is wrong inside ckptctl is a bug
(AssertionError, RuntimeError) and exits 1 with a traceback.

    CkptctlError
    |-- UsageError                                2  usage
    |   `-- ConfigError                           2  config-invalid
    |-- NothingThereError                         3  nothing-there
    |-- NotCheckedError                          11  not-checked
    |-- IncompatibleSnapshotError                12  snapshot-incompatible
    |-- InvalidSnapshotError                     13  snapshot-invalid
    |-- RefusedError                             20  refused
    |   |-- DiscoveryRefusedError                20  discovery-refused
    |   |-- AnchorRefusedError                   20  anchor-refused
    |   `-- NotFreshError                        20  not-fresh
    |-- BusyError                                21  busy
    |   |-- LockHeldError                        21  lock-held
    |   |-- RunTakenOverError                    21  run-taken-over
    |   `-- CheckpointConflictError              21  checkpoint-conflict
    |-- AttemptAbortedError                      22  attempt-aborted
    |-- ReleasePendingError                      23  published-release-pending
    |-- AdmissionClosedError                     24  admission-may-be-closed
    |   `-- JournalDamagedError                  24  journal-damaged
    |-- UnreachableError                         30  unreachable
    |   `-- TimedOutError                        30  timed-out
    |       `-- DeadlineError                    30  deadline-passed
    |-- ServerRefusedError                       31  server-refused
    |   |-- StaleCheckpointError                 31  stale-checkpoint
    |   |-- ServerCheckpointConflictError        21  server-checkpoint-conflict
    |   |-- InvalidPhaseError                    31  invalid-phase
    |   |-- PrepareIncompleteError               31  agent-prepare-incomplete
    |   |-- AcknowledgementRefusedError          31  acknowledgement-refused
    |   |-- NotQuiescentError                    31  ledger-not-quiescent
    |   |-- LedgerMismatchError                  31  ledger-mismatch
    |   |-- ResourcesCheckpointError             31  resources-checkpoint-error
    |   |-- UncertainSessionError                31  resource-mutation-uncertain
    |   |-- UnsafeRestoreError                   31  unsafe-restore
    |   |-- RevisionMismatchError                31  resource-revision-mismatch
    |   |-- CredentialError                      31  credential-refused
    |   |-- RouteMissingError                    31  route-missing
    |   |-- MalformedReplyError                  31  malformed-reply
    |   `-- TrainerStateChangedError             31  trainer-state-changed
    |-- StorageError                             32  storage
    |   `-- PublicationUnseenError               32  publication-unseen
    `-- StoppedError                            143  stopped
        `-- InterruptedStoppedError             130  interrupted

Each class has a stable kebab-case `code`, an `exit_code` and `retryable`; each instance has `message`, `hint` (what to do next;
None when nothing helps) and, when it was caused by another CkptctlError, `cause_code`.
"""

from ckptctl.errors.base import CkptctlError
from ckptctl.errors.exit_codes import EXIT_MEANINGS, ExitCode
from ckptctl.errors.host import InterruptedStoppedError, PublicationUnseenError, StoppedError, StorageError
from ckptctl.errors.request import (
    ConfigError,
    IncompatibleSnapshotError,
    InvalidSnapshotError,
    NotCheckedError,
    NothingThereError,
    UsageError,
)
from ckptctl.errors.servers import (
    REFUSALS,
    AcknowledgementRefusedError,
    CredentialError,
    DeadlineError,
    InvalidPhaseError,
    LedgerMismatchError,
    MalformedReplyError,
    NotQuiescentError,
    PrepareIncompleteError,
    ResourcesCheckpointError,
    RevisionMismatchError,
    RouteMissingError,
    ServerCheckpointConflictError,
    ServerRefusedError,
    StaleCheckpointError,
    TimedOutError,
    TrainerStateChangedError,
    UncertainSessionError,
    UnreachableError,
    UnsafeRestoreError,
)
from ckptctl.errors.transaction import (
    AdmissionClosedError,
    AnchorRefusedError,
    AttemptAbortedError,
    BusyError,
    CheckpointConflictError,
    DiscoveryRefusedError,
    JournalDamagedError,
    LockHeldError,
    NotFreshError,
    RefusedError,
    ReleasePendingError,
    RunTakenOverError,
)

__all__ = [
    "EXIT_MEANINGS",
    "REFUSALS",
    "AcknowledgementRefusedError",
    "AdmissionClosedError",
    "AnchorRefusedError",
    "AttemptAbortedError",
    "BusyError",
    "CheckpointConflictError",
    "CkptctlError",
    "ConfigError",
    "CredentialError",
    "DeadlineError",
    "DiscoveryRefusedError",
    "ExitCode",
    "IncompatibleSnapshotError",
    "InterruptedStoppedError",
    "InvalidPhaseError",
    "InvalidSnapshotError",
    "JournalDamagedError",
    "LedgerMismatchError",
    "LockHeldError",
    "MalformedReplyError",
    "NotCheckedError",
    "NotFreshError",
    "NotQuiescentError",
    "NothingThereError",
    "PrepareIncompleteError",
    "PublicationUnseenError",
    "RefusedError",
    "ReleasePendingError",
    "ResourcesCheckpointError",
    "RevisionMismatchError",
    "RouteMissingError",
    "RunTakenOverError",
    "ServerCheckpointConflictError",
    "ServerRefusedError",
    "StaleCheckpointError",
    "StoppedError",
    "StorageError",
    "TimedOutError",
    "TrainerStateChangedError",
    "UncertainSessionError",
    "UnreachableError",
    "UnsafeRestoreError",
    "UsageError",
]
