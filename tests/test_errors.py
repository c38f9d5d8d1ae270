"""Errors as a promise: each class built once with its exact text, codes unique, the drawn tree true, every documented refusal mapped."""

import json

import pytest

from ckptctl import errors
from ckptctl.errors import EXIT_MEANINGS, REFUSALS, CkptctlError, ExitCode, ServerRefusedError
from ckptctl.render.errors import error_json, error_text

PARTICIPANT_CODES = """
stale_checkpoint checkpoint_conflict invalid_phase agent_prepare_incomplete agent_checkpoint_error agent_admission_closed
duplicate_execution stale_attempt completed_execution_acknowledgement_error not_a_policy_instance ledger_mismatch
ledger_not_checkpointable ledger_not_quiescent resources_checkpoint_error resource_mutation_uncertain unsafe_resources_restore
resource_revision_mismatch checkpoint_parked resources_admission_closed execution_identity_mismatch resources_session_unbound
resource_request_receipt_error resource_receipt_capacity_exhausted resource_receipt_evicted
""".split()
"""The refusal codes that a participant of protocol generation A can give."""
CONTROLLER_CODES = """
checkpoint_conflict stale_checkpoint invalid_phase deadline_exceeded trainer_state_changed acknowledgements_pending
finalization_in_progress staging_rows_missing canonical_rows_differ restore_failed manifest_mismatch not_fresh unowned_redispatch
storage_error
""".split()
"""Those of the controller interface."""
REFUSAL = {"server": "counter", "operation": "resume", "status": 409, "server_code": "the_code", "detail": "its words"}
REFUSED = "`counter` refused resume: the_code: its words"
PLAIN = {"message": "what happened", "hint": "what to do"}
SERVER = {"server": "counter", "operation": "prepare", "detail": "connection refused"}

BUILT = {
    "StorageError": (
        {"operation": "write", "path": "/c/manifest.json", "detail": "No space left on device"},
        "cannot write `/c/manifest.json`: No space left on device",
        "mend the file system (space, permissions, mount), then run the same command again",
    ),
    "PublicationUnseenError": (
        {"path": "/c/step_1/rollout_snapshots/snapshot_000001", "detail": "Input/output error"},
        (
            "cannot see what became of `/c/step_1/rollout_snapshots/snapshot_000001`: it may be published, or not: "
            "Input/output error"
        ),
        "mend the file system, then run `ckptctl publish`: it looks again and finishes either",
    ),
    "ConfigError": (
        {"path": "run.yaml", "location": "ckptctl.token_env", "problem": "must be a name", "hint": "write one"},
        "configuration `run.yaml`: `ckptctl.token_env` must be a name",
        "write one",
    ),
    "LockHeldError": (
        {"checkpoint_dir": "/c", "owner": "pid 7 on node-3", "lease": "its lease ended", "may_be_dead": True},
        "`/c` is locked by another ckptctl: pid 7 on node-3; its lease ended",
        (
            "wait for it to end; its lease has ended: if nobody is at work here any more (look on that host, or ask `squeue`), "
            "repeat with `--break-lock`"
        ),
    ),
    "JournalDamagedError": (
        {"path": "/c/j/000007-snapshot.jsonl", "transaction": "000007-snapshot", "problem": "line 3 is no record"},
        (
            "the journal `/c/j/000007-snapshot.jsonl` is damaged: line 3 is no record; nothing says that its transaction has "
            "ended, so admission may still be closed"
        ),
        (
            "bring the file back as it was, or run `ckptctl publish --set-aside 000007-snapshot --reason TEXT`: "
            "it keeps the file under another name and says who is still held, and what frees them"
        ),
    ),
    "UnreachableError": (
        SERVER,
        "`counter` cannot be reached for prepare: connection refused",
        "check that the server runs and that its url in the configuration is right",
    ),
    "TimedOutError": (
        SERVER,
        "`counter` did not answer prepare in time: connection refused",
        "the server is there, but slow or stuck: its log says more, `ckptctl inspect --live` its phase",
    ),
    "DeadlineError": (
        {"server": "counter", "operation": "prepare", "last": "2 calls are in flight", "within": "300 s"},
        "the deadline of 300 s passed while waiting for `counter` (prepare): 2 calls are in flight",
        "give more time, or see with `ckptctl inspect --live` what it waits for",
    ),
    "ServerRefusedError": (REFUSAL, REFUSED, None),
    "StaleCheckpointError": (REFUSAL, REFUSED, "the id is finished; run the command again, it takes a new one"),
    "ServerCheckpointConflictError": (
        REFUSAL,
        REFUSED,
        "another coordinator is at work; `ckptctl inspect --live` shows which id holds which server",
    ),
    "InvalidPhaseError": (
        REFUSAL,
        REFUSED,
        "the server may have restarted; `ckptctl inspect --live` shows its phase",
    ),
    "PrepareIncompleteError": (REFUSAL, REFUSED, None),
    "AcknowledgementRefusedError": (
        REFUSAL,
        REFUSED,
        "the agent may have restarted; results that the ledger or replay metadata owns are settled, others are lost",
    ),
    "NotQuiescentError": (REFUSAL, REFUSED, None),
    "LedgerMismatchError": (REFUSAL, REFUSED, None),
    "ResourcesCheckpointError": (REFUSAL, REFUSED, None),
    "UncertainSessionError": (
        REFUSAL,
        REFUSED,
        (
            "a call of that session broke off and nobody knows whether it took effect, so every snapshot fails until that server is "
            "restarted: end the run's servers, start fresh ones and run `ckptctl restore`; the last published snapshot is from before it"
        ),
    ),
    "UnsafeRestoreError": (REFUSAL, REFUSED, "start fresh server processes, then restore"),
    "RevisionMismatchError": (
        REFUSAL,
        REFUSED,
        "if `ckptctl validate` calls the snapshot valid, this server build reads the older agent layout (`files` map)",
    ),
    "CredentialError": (
        REFUSAL,
        REFUSED,
        "set the environment variable that `ckptctl.token_env` names, or `ckptctl.token_file`",
    ),
    "RouteMissingError": (
        REFUSAL,
        REFUSED,
        "the server was started without a control token, or speaks another protocol generation",
    ),
    "MalformedReplyError": (
        REFUSAL,
        REFUSED,
        (
            "another program, a proxy or another version may answer there: check its url in the configuration and its "
            "log; `ckptctl inspect --live` asks every server"
        ),
    ),
    "TrainerStateChangedError": (REFUSAL, REFUSED, None),
}
"""Facts, message and hint of the classes that make their own text; all others say what they are told."""


def classes():
    """Every class of the tree but its root."""
    pending, found = list(CkptctlError.__subclasses__()), []
    while pending:
        found.append(pending.pop())
        pending += found[-1].__subclasses__()
    ours = [one for one in found if one.__module__.startswith("ckptctl.errors")]
    return sorted(ours, key=lambda one: one.__name__)


def drawn(cls, indent=""):
    """The subclasses as the docstring draws them."""
    below = [one for one in cls.__subclasses__() if one.__module__.startswith("ckptctl.errors")]
    if cls is CkptctlError:
        below.sort(key=lambda one: one.exit_code)
    lines = []
    for one in below:
        is_last = one is below[-1]
        branch = f"{indent}{'`-- ' if is_last else '|-- '}{one.__name__}"
        lines.append(f"    {branch:<44}{int(one.exit_code):>3}  {one.code}")
        lines += drawn(one, indent + ("    " if is_last else "|   "))
    return lines


@pytest.mark.parametrize("cls", classes(), ids=lambda cls: cls.__name__)
def test_every_class_says_exactly_this(cls):
    """Message and hint of each class, word for word."""
    facts, message, hint = BUILT.get(cls.__name__, (PLAIN, "what happened", "what to do"))
    error = cls(**facts)

    assert (message, hint, message) == (error.message, error.hint, str(error))
    assert None is error.cause_code


def test_texts_without_a_place_or_a_code():
    """A configuration that cannot be read at all has no key to name; a refusal without a code has its HTTP status."""
    whole = errors.ConfigError(path="run.yaml", location="", problem="cannot be read", hint=None)
    bare = ServerRefusedError(**{**REFUSAL, "server_code": "", "status": 500})
    alive = errors.LockHeldError(checkpoint_dir="/c", owner="pid 7", lease="it ends", may_be_dead=False)

    assert "configuration `run.yaml` cannot be read" == whole.message
    assert "`counter` refused resume: 500: its words" == bare.message
    assert "wait for it to end; once its lease has ended, and if nobody" in alive.hint


def test_codes_are_unique_and_kebab_case():
    """A code is a promise to programs."""
    codes = [cls.code for cls in classes()]

    assert sorted(set(codes)) == sorted(codes)
    assert [] == [code for code in codes if code != code.lower() or "_" in code or " " in code]


def test_the_drawn_tree_is_the_tree():
    """What the package's docstring draws is what the classes are."""
    text = errors.__doc__
    tree = text[text.index("    CkptctlError\n") : text.index("\n\nEach class has")]

    assert ["    CkptctlError", *drawn(CkptctlError)] == tree.splitlines()


def test_every_name_is_exported():
    """`from ckptctl.errors import X` works for every class, and for nothing that is none of its names."""
    assert {cls.__name__ for cls in classes()} | {"CkptctlError", "ExitCode", "EXIT_MEANINGS", "REFUSALS"} == set(
        errors.__all__
    )


def test_every_documented_refusal_has_a_class():
    """Participants' and the controller's codes, and nothing else, are mapped."""
    assert set(PARTICIPANT_CODES) | set(CONTROLLER_CODES) == REFUSALS.keys()


def test_every_exit_status_has_a_meaning():
    """Each status once, and each class one of them; the root's own status is that of a bug."""
    assert list(ExitCode) == list(EXIT_MEANINGS)
    assert ExitCode.BUG is CkptctlError.exit_code
    assert [] == [cls.__name__ for cls in classes() if cls.exit_code in (ExitCode.DONE, ExitCode.BUG)]


def test_an_error_as_text_and_as_json():
    """Code, message, cause and hint; what a server said is neutralised; JSON is one line."""
    cause = ServerRefusedError(**{**REFUSAL, "detail": "\x1b[31mred\x1b[0m"})
    error = errors.AttemptAbortedError("attempt `ck-1` failed", hint="run it again", cause=cause)
    text, line = error_text(error), error_json(error)

    assert (
        "error[attempt-aborted]: attempt `ck-1` failed\n"
        "  because: `counter` refused resume: the_code: \\x1b[31mred\\x1b[0m\n"
        "\n"
        "hint: run it again\n"
    ) == text
    assert 1 == line.count("\n")
    assert {
        "schema_version": 1,
        "code": "attempt-aborted",
        "exit_code": 22,
        "message": "attempt `ck-1` failed",
        "hint": "run it again",
        "retryable": True,
        "cause": "server-refused",
        "server": "counter",
        "server_code": "the_code",
    } == json.loads(line)


def test_a_cause_is_told_where_it_adds_something():
    """What the message already says, or a cause without a word of its own, is no second line."""
    silent = errors.TimedOutError(server="s", operation="prepare", detail="no answer within 5 s", cause=TimeoutError())
    full = errors.StorageError(
        operation="write",
        path="/c/f",
        detail="No space left on device",
        cause=OSError(28, "No space left on device", "/c/f"),
    )
    told = errors.UnreachableError(server="s", operation="prepare", detail="reset", cause=OSError("by peer"))

    assert ["because" in error_text(error) for error in (silent, full, told)] == [False, False, True]
