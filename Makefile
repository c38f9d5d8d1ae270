# Everything here sets itself up in .venv; a machine needs Python 3.11 or newer and make.
# The newest interpreter that runs and is new enough: a name on the PATH may be a shim without a Python behind it.
PYTHON ?= $(shell for name in python3.13 python3.12 python3.11 python3; do \
	"$$name" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$name" && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test test-long soak lint generate bench integration clean

help:
	@echo "make demo         start the embedded cluster, snapshot it, kill it, restore it, compare with an uninterrupted run"
	@echo "make test         the whole fast test suite"
	@echo "make lint         format, lint, types, import contracts, generated files"
	@echo "make generate     write everything that is generated (schemas, completions, README blocks)"
	@echo "make bench        programs that print ratios"
	@echo "make integration  tests with real torch and TransferQueue, in an environment of their own"
	@echo "make test-long    the long modes"
	@echo "make soak         100,000 seeds of the simulation, on all CPUs (SOAK_FROM, SOAK_SEEDS)"

$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "ckptctl needs Python 3.11 or newer (with venv)"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[sim,controller]' --group dev
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/ckptctl sim demo

test: $(STAMP)
	$(BIN)/python -m pytest -n 2

test-long: $(STAMP)
	$(BIN)/python -m pytest -m 'long and not integration' --timeout 3600

SOAK_FROM ?= 0
SOAK_SEEDS ?= 100000

soak: $(STAMP)
	$(BIN)/python -m tests.simulation --seeds $(SOAK_FROM) $(SOAK_SEEDS)

lint: $(STAMP)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.regenerate --check

generate: $(STAMP)
	$(BIN)/python -m tests.regenerate

bench: $(STAMP)
	$(BIN)/python -m pip install --quiet --group bench || echo "rivals that are not installed are left out"
	$(BIN)/python -m tests.bench

integration: $(STAMP)
	bash tests/integration/run.sh

clean:
	rm -rf $(VENV) .venv-integration .mypy_cache .ruff_cache .pytest_cache .hypothesis
