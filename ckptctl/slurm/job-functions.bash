# ckptctl: functions for batch scripts (bash). `source <(ckptctl slurm show job-functions)`; needs CKPTCTL_CONFIG.
#
#   ckptctl_begin          this run owns the checkpoint directory; sets CKPTCTL_RESUME_FROM (empty: nothing to resume)
#   ckptctl_restore        once the servers listen: restores them; does nothing when there is nothing to restore
#   ckptctl_periodic       takes snapshots in the background, at the interval of the configuration
#   ckptctl_watch PID      waits for the training; on USR1 it takes a snapshot within CKPTCTL_GRACE (20s) and stops it;
#                          on TERM within CKPTCTL_TERM_GRACE (20s): KILL follows after KillWait (Slurm's default: 30 s)
#   ckptctl_end            finishes or releases what is pending, collects garbage
#
# Each returns ckptctl's exit status; 21 from the first: another run of this job has taken over, end this one.

: "${CKPTCTL_CONFIG:?names the run configuration}"
export CKPTCTL_CONFIG
ckptctl_stopped_by=
ckptctl_periodic_pid=

# Signals are heard from the first line on: untrapped, USR1 ends the script, and it may come a minute early.
trap 'ckptctl_stopped_by=USR1' USR1
trap 'ckptctl_stopped_by=TERM' TERM

# 22: an attempt was aborted, 30: a server did not answer: both may be tried again. 21 is the lock of a run that was lost
# with its node: --break-lock takes it once its lease is over, a minute after its owner was last heard of. The claim of
# ckptctl_begin makes that safe: whoever wakes up later publishes nothing.
ckptctl_patiently() {
  local try status
  for try in 1 2 3 4 5 6 7 8; do
    status=0
    "$@" || status=$?
    case $status in
      21 | 22 | 30)
        [ -n "$ckptctl_stopped_by" ] && return "$status"
        sleep "${CKPTCTL_PAUSE:-10}" &
        wait "$!" ;; # comes back for a signal at once
      *) return "$status" ;;
    esac
  done
  return "$status"
}

ckptctl_begin() {
  local status=0
  CKPTCTL_RUN_TOKEN=$(ckptctl slurm claim) || return
  export CKPTCTL_RUN_TOKEN
  # A TaskProlog may have selected already; what another job handed down (sbatch from within a job) is none of ours.
  if [ "${CKPTCTL_RESUME_OF:-}" != "${SLURM_JOB_ID:-}.${SLURM_RESTART_COUNT:-0}" ]; then
    CKPTCTL_RESUME_FROM=$(ckptctl restore --select) || status=$?
    [ "$status" -eq 3 ] && CKPTCTL_RESUME_FROM= && status=0
  fi
  export CKPTCTL_RESUME_FROM
  return "$status"
}

ckptctl_restore() {
  case ${CKPTCTL_RESUME_FROM:-} in
    */rollout_snapshots/*) ckptctl_patiently ckptctl restore --break-lock ;;
  esac
}

ckptctl_periodic() {
  # No last one of its own at TERM: ckptctl_watch takes it, in the time that there is.
  ckptctl snapshot --every config --last-within 0s --break-lock &
  ckptctl_periodic_pid=$!
}

ckptctl_stop_periodic() {
  [ -n "$ckptctl_periodic_pid" ] || return 0
  kill -TERM "$ckptctl_periodic_pid" 2>/dev/null # what it has begun it aborts and releases: the lock is free then
  while kill -0 "$ckptctl_periodic_pid" 2>/dev/null; do wait "$ckptctl_periodic_pid"; done # a signal ends one wait early
  ckptctl_periodic_pid=
}

ckptctl_watch() {
  local status=0 grace=${CKPTCTL_GRACE:-20s}
  # `wait` comes back for a trapped signal at once; a child in the foreground would hold the trap up until it ends.
  while [ -z "$ckptctl_stopped_by" ]; do
    status=0
    wait "$1" || status=$?
    # Slurm sends TERM to one process after another: a training that it has ended may be heard of before our own signal.
    [ "$status" -eq 0 ] || [ -n "$ckptctl_stopped_by" ] || sleep 1
    [ -n "$ckptctl_stopped_by" ] && break
    ckptctl_stop_periodic
    return "$status"
  done
  ckptctl_stop_periodic
  # --deadline: aborted and released in time, rather than killed in the middle.
  [ "$ckptctl_stopped_by" = TERM ] && grace=${CKPTCTL_TERM_GRACE:-20s}
  status=0
  ckptctl snapshot --deadline "$grace" --break-lock || status=$?
  kill -TERM "$1" 2>/dev/null
  return "$status"
}

ckptctl_end() {
  local status=0
  ckptctl publish || status=$?
  ckptctl gc || true # what it could not delete the next run deletes
  return "$status"
}
