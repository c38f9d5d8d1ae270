"""Scheduler-safe entry points: `ckptctl hook prolog|epilog|task-prolog`, the standard library only.

A Prolog or Epilog that fails or hangs drains its node, so a hook ends with 0 within its own deadline whatever it meets.
Three processes keep that promise (`entry`, `work`, `reader`): a watchdog that touches no file system after its start, a
worker that writes the verdict to a local directory, and a reader that is the job's user, looks at the user's files and
becomes `ckptctl inspect` or `ckptctl restore --select`. Whoever hangs is killed, and abandoned if that does not help: a
dead mount holds a process in the kernel. Nothing here imports the rest of ckptctl; what takes more is started as a program.

One exception to "one module writes to disk": `record` writes the verdict and the metrics by itself, because this package
may import nothing of the floors. Both are news of one run, made whole by a rename; a checkpoint is never written here.
"""
