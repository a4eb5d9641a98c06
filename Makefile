# Everything a developer runs. `make` alone lists it. Only `setup` and `fix` change files of the tree.

.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
PY := .venv/bin/python
STAMP := .venv/.setup-done

.PHONY: help setup demo test check fix storm storm-real storm-members plant bench compiled fuzz

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## create .venv and install rollmq with all that development needs

$(STAMP): pyproject.toml
	@command -v $(PYTHON) > /dev/null || \
	  { echo "make setup: there is no $(PYTHON) on PATH. Install Python 3.11 or newer, or run: make setup PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make setup: $$($(PYTHON) -V) is too old, rollmq needs 3.11 or newer. Run: make setup PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv .venv || \
	  { rm -rf .venv; echo "make setup: $(PYTHON) cannot create a virtual environment. On Debian or Ubuntu: apt install python3-venv"; exit 1; }
	@$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make setup: the Python in .venv is too old. Remove .venv and run make setup again."; exit 1; }
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[dev,spark]'
	@touch $@

demo: setup ## three nodes under load, the leader killed, nothing lost: half a minute on this machine
	.venv/bin/rollmq demo

test: setup ## all tests, as CI runs them (under 20 minutes on two cores)
	$(PY) -m pytest -n 2 --dist loadgroup -q tests

check: setup ## read-only: format, lint, types, fast tests (under two minutes)
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy --strict src
	$(PY) -m pytest -n 2 --dist loadgroup -q -m "not slow" tests

fix: setup ## format, fix what the linter can, renew the generated docs
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .
	$(PY) -m tests.docs_tables --rewrite
	$(PY) -m tests.wire.protocol_page --rewrite

storm: setup ## simulator seeds until stopped, groups and single nodes in turns (SECONDS=n bounds it)
	$(PY) -m tests.groupsim storm --both $(if $(SECONDS),--seconds $(SECONDS))

storm-real: setup ## real processes killed, stopped and cut off at random until stopped (SECONDS=n, NODES=1 or 3)
	$(PY) -m tests.system storm $(if $(SECONDS),--seconds $(SECONDS)) $(if $(NODES),--nodes $(NODES))

storm-members: setup ## members of a real group change while its nodes are killed (ROUNDS=n)
	$(PY) -m tests.group.members_storm $(if $(ROUNDS),--rounds $(ROUNDS))

plant: setup ## apply known bugs one by one: each must turn its test red
	$(PY) -m tests.plant

bench: setup ## figures, each beside the machine's own limits
	$(PY) -m bench

compiled: ## build the compiled wheel (docs/decisions/0011-compiled-core.md) and run the suites against it
	rm -rf build/compiled && $(PYTHON) -m venv build/compiled
	ROLLMQ_COMPILE=1 build/compiled/bin/python -m pip install --quiet --disable-pip-version-check '.[dev,spark]'
	build/compiled/bin/python -c "import rollmq.core.machine as m; assert not m.__file__.endswith('.py')"
	build/compiled/bin/python -m pytest -n 2 --dist loadgroup -q -m "not pure" tests

fuzz: setup ## coverage-guided fuzzing of the codec and the log reader (SECONDS=n per target)
	$(PY) -m tests.fuzz $(SECONDS)
