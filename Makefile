# Every target makes and reuses its own virtual environment: a fresh machine needs Python 3.11+ and make, nothing else.

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do command -v $$p >/dev/null 2>&1 && \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
RUNS := $(VENV)/.run
READY := $(VENV)/.ready
TARGET ?=
OUT ?= build/conformance
PROFILE ?= core
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: sim soak scale chaos first-start quality kube kube-demo
.PHONY: help run test lint format typecheck contracts unit coverage generate build bench e2e fuzz crash conformance conformance-self clean

help: ## what you can type
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

# What running needs, and what building and testing add to it.
$(RUNS): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "BigFleet needs Python 3.11 or newer on PATH"; exit 1; }
	@echo "setting up $(VENV) with $(PYTHON), once: what a shard and the demo need, 400 MB on disk ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[shard]'
	@touch $@

$(READY): $(RUNS)
	@echo "adding to $(VENV), once: what building and testing need ..."
	@$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

run: $(RUNS) ## see BigFleet run a small pretend fleet; live on a terminal, else a short script
	@if [ -t 0 ] && [ -t 1 ]; then $(BIN)/bigfleet demo; else $(BIN)/bigfleet demo --once; fi

test: $(READY) lint typecheck contracts unit ## everything that must never break

# Kernels first: the processes that share the tests out would compile them side by side.
# With BIGFLEET_KUBE_BUILD=1 a control plane is built before the tests that need one, where `go` is; without it, or when
# it takes too long, those tests are skipped and a line says so.
unit: $(READY) ## the test suite alone, in WORKERS processes
	$(BIN)/bigfleet warm
	@if [ "$$BIGFLEET_KUBE_BUILD" = 1 ] && command -v go >/dev/null; then $(BIN)/python -m tools.kube build --within 40 || true; fi
	@$(BIN)/python -m tools.kube skipped
	$(BIN)/python -m pytest tests -n $(WORKERS) --dist loadfile

coverage: $(READY) ## the test suite with a coverage report
	$(BIN)/python -m pytest tests --cov --cov-report=term --cov-report=xml

lint: $(READY) ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(READY) ## rewrite the tree in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

typecheck: $(READY) ## strict types
	$(BIN)/mypy

contracts: $(READY) ## layers and pure cores
	$(BIN)/lint-imports

generate: $(READY) ## regenerate wire modules and generated documents
	$(BIN)/python tools/generate.py
	$(BIN)/python tools/machine_states.py docs/machine-states.md
	$(BIN)/python tools/architecture.py docs/architecture.md
	@if command -v go >/dev/null; then cd tools/quantity_vectors && go run . -o ../../tests/data/quantity_vectors.jsonl.gz; \
	else echo "quantity vectors kept: regenerating them needs the Go toolchain"; fi

build: $(READY) ## wheel and source distribution in dist/
	$(BIN)/python -m build

bench: $(READY) ## every engine shape against the published figures, into docs/performance.md
	$(BIN)/python -m bench all

first-start: $(READY) ## a shard and make run on a fresh machine: empty kernel cache, fresh clone
	$(BIN)/python -m bench start --json docs/evidence/first-start.json

quality: $(READY) ## dollars against bounds and rivals, the judge of decisions; tens of minutes
	$(BIN)/python -m bench quality --jobs $$(nproc) --json docs/evidence/quality.json

e2e: $(READY) kube ## checks against real Kubernetes code and a real control plane, in full; needs the Go toolchain
	@failed=0; \
	$(BIN)/python -m pytest -m needs_go tests || failed=1; \
	BIGFLEET_E2E=1 $(BIN)/python -m pytest tests/kube || failed=1; \
	$(BIN)/python -m tools.kube.mirror_check --clusters 300 --json docs/evidence/mirror-against-scheduler.json || failed=1; \
	$(BIN)/python -m tools.kube.certify --json docs/evidence/conformance-simnode.json || failed=1; \
	$(BIN)/python -m tools.kube.thousand --json docs/evidence/kube-thousand-pods.json || failed=1; \
	$(BIN)/python -m tools.kube.thousand --untainted --json docs/evidence/kube-thousand-pods-untainted.json || failed=1; \
	$(BIN)/python -m tools.kube.many_requests --json docs/evidence/kube-many-requests.json || failed=1; \
	$(BIN)/python -m tools.kube.fill_levels --json docs/evidence/kube-fill-levels.json || failed=1; \
	exit $$failed

kube: $(READY) ## build a Kubernetes control plane from its Go modules, once; a quarter of an hour on two quiet cores
	@command -v go >/dev/null || { echo "a control plane needs the Go toolchain on PATH (it is built from its Go modules)"; exit 1; }
	$(BIN)/python -m tools.kube build

kube-demo: $(READY) ## a real control plane with BigFleet in it, and a kubeconfig to play with
	$(BIN)/python -m tools.kube.demo

fuzz: $(READY) ## 50,000 random fleets: engine against oracle; 5,000 random scenarios in closed loop; 5,000 histories of coordinator and shards, by the contract and with both real cores
	$(BIN)/python tools/fuzz_engine.py --fleets 50000 --json docs/evidence/engine-fuzz.json
	$(BIN)/python tools/fuzz_scenarios.py --count 5000 --json docs/evidence/scenario-fuzz.json
	PYTHONPATH=. $(BIN)/python tools/fuzz_coordinator.py --histories 5000 --json docs/evidence/coordinator-fuzz.json

sim: $(READY) ## every shipped scenario against its golden trace
	$(BIN)/fauxctl check

soak: $(READY) ## 50,000 cycles of random demand on 3,000 machines, inline and in full protocol; uber-5k against its limit
	@failed=0; \
	$(BIN)/python -m bench sim --json docs/evidence/sim-soak.json || failed=1; \
	$(BIN)/fauxctl run uber-5k --within 5 --json docs/evidence/sim-uber-5k.json || failed=1; \
	$(BIN)/fauxctl soak --cycles 50000 --clusters 50 --full-protocol --json docs/evidence/sim-soak-full-protocol.json || failed=1; \
	exit $$failed

scale: $(READY) ## a day of 100,000 machines on a virtual clock; ten minutes of load on a real shard; an hour of faults on coordinators
	$(BIN)/fauxctl run fleet-day-100k --out build/fleet-day-100k --json docs/evidence/sim-fleet-day-100k.json
	$(BIN)/python -m bench shard load --seconds 600 --json docs/evidence/shard-load-10min.json
	$(BIN)/python -m bench coordinator endurance --minutes 60 --json docs/evidence/coordinator-endurance.json

chaos: $(READY) ## 500 kills, hangs, cuts and losses around a real shard
	$(BIN)/python -m tools.chaos --events 500 --json docs/evidence/shard-chaos.json

crash: $(READY) ## kill -9 a kit provider 200 times under load
	$(BIN)/python tools/crash.py --kills 200 --json docs/evidence/provider-crash.json

conformance: $(READY) ## certify a provider: make conformance TARGET=HOST:PORT
	@test -n "$(TARGET)" || { echo "say where your provider listens: make conformance TARGET=127.0.0.1:9000 [PROFILE=core,cloud]"; exit 2; }
	$(BIN)/bigfleet-conformance run --target $(TARGET) --profile $(PROFILE) --out $(OUT)

conformance-self: $(READY) ## certify our own fake and the skeleton provider
	$(BIN)/python tools/conformance_self.py

clean: ## remove everything that make created
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis htmlcov coverage.xml .coverage
