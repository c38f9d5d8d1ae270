#!/usr/bin/env bash
# Runs the tests that need real torch and TransferQueue, in an environment of their own (.venv-integration in the repository root), and
# those on a real Slurm (slurm.sh).
# Needs Python 3.11 or newer; installs the rest when it is absent or when the pins changed. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=
for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
  # Asked, not looked up: version managers leave commands on the path that do not run.
  if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$candidate && break; fi
done
[ -n "$python" ] || { echo "tests/integration/run.sh: needs Python 3.11 or newer" >&2; exit 1; }
venv=.venv-integration
wanted=$(cat tests/integration/requirements.txt pyproject.toml | cksum)
if [ ! -x "$venv/bin/python" ] || [ "$(cat "$venv/.installed" 2>/dev/null)" != "$wanted" ]; then
  [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement tests/integration/requirements.txt --editable '.[sim,transferqueue]'
  printf '%s\n' "$wanted" >"$venv/.installed"
fi
. tests/integration/slurm.sh
status=0
"$venv/bin/python" -m pytest -m integration tests/integration "$@" || status=$?
[ -n "${CKPTCTL_SLURM_PYTHON:-}" ] || say_no_slurm
exit "$status"
