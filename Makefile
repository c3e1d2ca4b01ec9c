# Everything a person or a CI runs. Long steps print one line each; what succeeds says no more than that.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Each process has a control plane and a Prometheus of its own, and mostly waits.
SIDE_BY_SIDE := -n 3 --maxschedchunk=1 -m 'not kubelet and not last'
RIGHTS := .cache/rights

# $(call step,TITLE,COMMAND): the title, then how long it took, or the end of its output if it failed.
define step
	@log=$$(mktemp); trap 'rm -f "$$log"' EXIT; printf '%s ... ' '$(1)'; \
	if ( $(2) ) >"$$log" 2>&1; then echo "$$SECONDS s"; else echo failed; tail -n 60 "$$log"; exit 1; fi
endef

.PHONY: help demo test coverage check lint bridge browser binaries rig e2e proof bench leaderboard clean

help: ## show this list
	@grep -E '^[a-z0-9]+:.*##' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z0-9]+):.*## /  make \1\t/' | expand -t 16

demo: $(VENV)/.runtime ## watch it work on a simulated cluster; needs no cluster, no Prometheus and no Go
	@$(BIN)/bridge-autoscaler demo || [ $$? = 130 ] # Ctrl-C is an end that it offers

test: $(VENV)/.dev binaries lint bridge browser ## run every test, the real control plane and the real Prometheus included (needs Go)
	@rm -rf $(RIGHTS)
	@RIG_RIGHTS=$(RIGHTS) $(BIN)/python -m pytest -q $(SIDE_BY_SIDE)
	@RIG_RIGHTS=$(RIGHTS) $(BIN)/python -m pytest -q -m last tests/test_least_privilege.py

coverage: $(VENV)/.dev binaries browser ## the same tests, and which branches none of them takes; slower (needs Go)
	@rm -f .coverage .coverage.*
	@$(BIN)/python -m pytest -q $(SIDE_BY_SIDE) --cov --cov-report=
	@echo "branch coverage: $$($(BIN)/coverage report --format=total) % (gaps: $(BIN)/coverage report -m)"

check: $(VENV)/.dev lint ## lint, types and the fast tests, in a minute or two
	@$(BIN)/python -m pytest -q -n 2 -m 'not rig and not kubelet and not browser and not slow'

lint: $(VENV)/.dev
	$(call step,ruff,$(BIN)/ruff check . && $(BIN)/ruff format --check .)
	$(call step,mypy,$(BIN)/mypy)
	$(call step,import directions,$(BIN)/lint-imports)

bridge:
	$(call step,bridge for tests,cd tests/bridge && test -z "$$(gofmt -l .)" && go vet ./... && go test ./...)

browser: $(VENV)/.dev
	@$(BIN)/python -m tests.browser.needs

binaries: $(VENV)/.dev
	@$(BIN)/python -m tests.rig.build

rig: $(VENV)/.dev binaries ## start a control plane, a Prometheus and sample bridges for trying things by hand (needs Go)
	@$(BIN)/python -m tests.rig

e2e: $(VENV)/.dev ## tell the stories on real kubelets: two emulated nodes, or the cluster of E2E_KUBECONFIG (needs Go, and Debian or that cluster)
	@$(BIN)/python -m tests.kubelet

proof: $(VENV)/.dev binaries ## hold the landing proof against the real scheduler in 500 clusters; takes six minutes (needs Go)
	@$(BIN)/python -m tests.proof

bench: $(VENV)/.dev binaries ## measure decisions, plans and start-up; prints figures, fails nothing (needs Go)
	@for file in bench/[a-z]*.py; do $(BIN)/python -m "bench.$$(basename "$$file" .py)"; done

TRACES ?=
leaderboard: $(VENV)/.runtime ## rank all recommenders on all traces, in docs/leaderboard.md; more traces: TRACES=FOLDER
	@$(BIN)/bridge-autoscaler leaderboard $(if $(TRACES),--traces '$(TRACES)') -o docs/leaderboard.md

clean: ## remove the virtual environment and what the tools left (the built control plane stays in the user's cache)
	@rm -rf $(VENV) .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage .coverage.* htmlcov build *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) is not installed; Python 3.11 or newer is needed: apt-get install python3 python3-venv" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: $$($(PYTHON) -V) is too old, 3.11 or newer is needed; name another one with: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "error: $(PYTHON) cannot make virtual environments; install its venv module: apt-get install python3-venv" >&2; exit 1; }
	$(call step,making a virtual environment,$(PYTHON) -m venv --clear $(VENV))

$(VENV)/.runtime: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(call step,installing what it runs on,$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e .)
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/.runtime
	$(call step,installing what it is tested with,$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[dev]')
	@touch $@
