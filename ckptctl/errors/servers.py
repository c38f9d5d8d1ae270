"""What servers do to a request: not answer, refuse with a documented code, answer with something else."""

from __future__ import annotations

from typing import ClassVar

from ckptctl.errors.base import CkptctlError
from ckptctl.errors.exit_codes import ExitCode


def _named(server: str, url: str | None) -> str:
    return f"`{server}`" if url is None else f"`{server}` ({url})"


class UnreachableError(CkptctlError):
    """A server cannot be reached."""

    code = "unreachable"
    exit_code = ExitCode.UNREACHABLE
    retryable = True

    def __init__(
        self,
        *,
        server: str,
        operation: str,
        detail: str,
        url: str | None = None,
        hint: str | None = None,
        cause: BaseException | None = None,
    ) -> None:
        self.server, self.operation, self.url, self.detail = server, operation, url, detail
        super().__init__(
            f"{_named(server, url)} cannot be reached for {operation}: {detail}",
            hint=hint or "check that the server runs and that its url in the configuration is right",
            cause=cause,
        )


class TimedOutError(UnreachableError):
    """A server did not answer in time. Whether the operation was done is unknown: only the same id may be used again.

    `others` names who else was waited for as long, for whoever stops at the first failure.
    """

    code = "timed-out"

    def __init__(
        self,
        *,
        server: str,
        operation: str,
        detail: str,
        url: str | None = None,
        others: tuple[str, ...] = (),
        hint: str | None = None,
        cause: BaseException | None = None,
    ) -> None:
        self.server, self.operation, self.url, self.detail = server, operation, url, detail
        self.others = others
        CkptctlError.__init__(
            self,
            f"{_named(server, url)} did not answer {operation} in time: {detail}",
            hint=hint
            or "the server is there, but slow or stuck: its log says more, `ckptctl inspect --live` its phase",
            cause=cause,
        )


class DeadlineError(TimedOutError):
    """A deadline passed while something was waited for; `last` is how it stood then.

    `others` names who else was waited for, `within` is the length of the deadline in words.
    """

    code = "deadline-passed"
    default_hint: ClassVar[str] = "give more time, or see with `ckptctl inspect --live` what it waits for"

    def __init__(
        self,
        *,
        server: str,
        operation: str,
        last: str,
        url: str | None = None,
        others: tuple[str, ...] = (),
        within: str | None = None,
        hint: str | None = None,
        cause: BaseException | None = None,
    ) -> None:
        self.server, self.operation, self.url, self.detail = server, operation, url, last
        self.others = others
        at = "" if url is None else f" at {url}"
        waited_for = ", ".join((f"`{server}` ({operation}{at})", *others))
        length = "" if within is None else f" of {within}"
        CkptctlError.__init__(
            self,
            f"the deadline{length} passed while waiting for {waited_for}: {last}",
            hint=hint or self.default_hint,
            cause=cause,
        )


class ServerRefusedError(CkptctlError):
    """A server answered with a refusal; `server_code` and `detail` are its own words."""

    code = "server-refused"
    exit_code = ExitCode.SERVER_REFUSED

    def __init__(
        self, *, server: str, operation: str, status: int, server_code: str, detail: str, hint: str | None = None
    ) -> None:
        self.server, self.operation, self.status = server, operation, status
        self.server_code, self.detail = server_code, detail
        super().__init__(
            f"`{server}` refused {operation}: {server_code or status}: {detail}", hint=hint or self.default_hint
        )

    default_hint: ClassVar[str | None] = None


class StaleCheckpointError(ServerRefusedError):
    """The checkpoint id was retired before; it can never be used again in that process."""

    code = "stale-checkpoint"
    default_hint = "the id is finished; run the command again, it takes a new one"


class ServerCheckpointConflictError(ServerRefusedError):
    """Another checkpoint id is active in that server."""

    code = "server-checkpoint-conflict"
    exit_code = ExitCode.BUSY
    retryable = True
    default_hint = "another coordinator is at work; `ckptctl inspect --live` shows which id holds which server"


class InvalidPhaseError(ServerRefusedError):
    """The server is in a phase that does not allow the operation."""

    code = "invalid-phase"
    default_hint = "the server may have restarted; `ckptctl inspect --live` shows its phase"


class PrepareIncompleteError(ServerRefusedError):
    """An agent is not ready yet: the normal polling answer."""

    code = "agent-prepare-incomplete"
    retryable = True


class AcknowledgementRefusedError(ServerRefusedError):
    """An agent does not know the completed result that was acknowledged."""

    code = "acknowledgement-refused"
    default_hint = (
        "the agent may have restarted; results that the ledger or replay metadata owns are settled, others are lost"
    )


class NotQuiescentError(ServerRefusedError):
    """The policy model still has calls in flight."""

    code = "ledger-not-quiescent"
    retryable = True


class LedgerMismatchError(ServerRefusedError):
    """The model ledger does not fit the continuations, or its capture directory is not clean."""

    code = "ledger-mismatch"


class ResourcesCheckpointError(ServerRefusedError):
    """A resources server could not prepare, export or restore its sessions."""

    code = "resources-checkpoint-error"


class UncertainSessionError(ServerRefusedError):
    """A resources session does not know whether its last mutation happened; it blocks every snapshot."""

    code = "resource-mutation-uncertain"
    default_hint = (
        "a call of that session broke off and nobody knows whether it took effect, so every snapshot fails until that server "
        "is restarted: end the run's servers, start fresh ones and run `ckptctl restore`; the last published snapshot is from "
        "before it"
    )


class UnsafeRestoreError(ServerRefusedError):
    """A server that already worked was asked to restore."""

    code = "unsafe-restore"
    default_hint = "start fresh server processes, then restore"


class RevisionMismatchError(ServerRefusedError):
    """Agent boundaries and resource sessions disagree, or the server reads another agent layout."""

    code = "resource-revision-mismatch"
    default_hint = (
        "if `ckptctl validate` calls the snapshot valid, this server build reads the older agent layout (`files` map)"
    )


class CredentialError(ServerRefusedError):
    """401: the control token is missing or wrong."""

    code = "credential-refused"
    default_hint = "set the environment variable that `ckptctl.token_env` names, or `ckptctl.token_file`"


class RouteMissingError(ServerRefusedError):
    """404: the route is not installed (no token on that server, or generation B)."""

    code = "route-missing"
    default_hint = "the server was started without a control token, or speaks another protocol generation"


class MalformedReplyError(ServerRefusedError):
    """The server answered with something that is not the documented reply."""

    code = "malformed-reply"
    retryable = True
    default_hint = (
        "another program, a proxy or another version may answer there: check its url in the configuration and its log; "
        "`ckptctl inspect --live` asks every server"
    )


class TrainerStateChangedError(ServerRefusedError):
    """The trainer moved on between the beginning and the cut."""

    code = "trainer-state-changed"
    retryable = True


REFUSALS: dict[str, type[ServerRefusedError]] = {
    "stale_checkpoint": StaleCheckpointError,
    "checkpoint_conflict": ServerCheckpointConflictError,
    "invalid_phase": InvalidPhaseError,
    "agent_prepare_incomplete": PrepareIncompleteError,
    "agent_checkpoint_error": ServerRefusedError,
    "agent_admission_closed": ServerRefusedError,
    "duplicate_execution": ServerRefusedError,
    "stale_attempt": ServerRefusedError,
    "completed_execution_acknowledgement_error": AcknowledgementRefusedError,
    "not_a_policy_instance": ServerRefusedError,
    "ledger_mismatch": LedgerMismatchError,
    "ledger_not_checkpointable": ServerRefusedError,
    "ledger_not_quiescent": NotQuiescentError,
    "resources_checkpoint_error": ResourcesCheckpointError,
    "resource_mutation_uncertain": UncertainSessionError,
    "unsafe_resources_restore": UnsafeRestoreError,
    "resource_revision_mismatch": RevisionMismatchError,
    "checkpoint_parked": ServerRefusedError,
    "resources_admission_closed": ServerRefusedError,
    "execution_identity_mismatch": ServerRefusedError,
    "resources_session_unbound": ServerRefusedError,
    "resource_request_receipt_error": ServerRefusedError,
    "resource_receipt_capacity_exhausted": ServerRefusedError,
    "resource_receipt_evicted": ServerRefusedError,
    # the controller's own (controller-interface)
    "deadline_exceeded": ServerRefusedError,
    "trainer_state_changed": TrainerStateChangedError,
    "acknowledgements_pending": ServerRefusedError,
    "finalization_in_progress": ServerRefusedError,
    "staging_rows_missing": ServerRefusedError,
    "canonical_rows_differ": ServerRefusedError,
    "restore_failed": ServerRefusedError,
    "manifest_mismatch": ServerRefusedError,
    "not_fresh": UnsafeRestoreError,
    "unowned_redispatch": ServerRefusedError,
    "storage_error": ServerRefusedError,
}
"""Each documented refusal code and the class that carries it; an unknown code is reported verbatim as ServerRefusedError."""
