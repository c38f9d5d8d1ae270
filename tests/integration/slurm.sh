# Sourced by run.sh: Slurm from the distribution's packages, and a Python with ckptctl that every user may start, since hooks and jobs
# run as others. Sets CKPTCTL_SLURM_PYTHON; where that cannot be had it says so, and run.sh says so again at its end.

set_up_slurm() {
  local package missing="" python=/usr/bin/python3 folder=/var/tmp/ckptctl-slurm-tests wanted
  [ "$(id -u)" = 0 ] || { echo "Slurm's daemons need root" >&2; return 1; }
  for package in slurmctld slurmd slurm-client munge python3-venv; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing="$missing $package"
  done
  if [ -n "$missing" ]; then
    command -v apt-get >/dev/null || { echo "not installed:$missing" >&2; return 1; }
    # Without what is recommended: 9 packages instead of 43. Nothing is started: the tests write a configuration of their own.
    apt-get update -qq || return 1
    # shellcheck disable=SC2086 # a list of names
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null || return 1
  fi
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$python is older than 3.11" >&2; return 1; }
  wanted=$(cksum <pyproject.toml)
  if [ "$(cat "$folder/.installed" 2>/dev/null)" != "$wanted" ]; then
    rm -rf "$folder"
    (umask 022 && "$python" -m venv "$folder/venv" && "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check '.[sim]') || return 1
    printf '%s\n' "$wanted" >"$folder/.installed"
  fi
  # The code of today, without asking for the packages again; compiled, since users cannot write there.
  (umask 022 && "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall .) || return 1
  export CKPTCTL_SLURM_PYTHON=$folder/venv/bin/python
}

say_no_slurm() { echo "*** tests/integration: NO SLURM HERE, hooks and batch scripts are NOT TESTED on it ***" >&2; }

set_up_slurm || say_no_slurm
