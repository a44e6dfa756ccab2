# `make demo` and `make test` do all the set-up they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo federation test lint types unit test-slow test-hostile test-federation test-gpu mutants fingerprints tables results docs docs-serve format bench bench-peers bench-scale clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

# torch first and by its exact version: a range would pull the GPU build with gigabytes of libraries.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)  ## train FedAvg and SCAFFOLD on non-IID digits, three seeds, and compare them
	$(BIN)/accord describe --set partition.alpha=0.1
	$(BIN)/accord compare --algorithms fedavg,fedprox,scaffold --seeds 0,1,2 --set partition.alpha=0.1 --set rounds=15 --out runs/demo

federation: $(READY)  ## a real federation on this machine: TLS, three nodes with their own data, SCAFFOLD; then all ends
	$(BIN)/accord federation demo --nodes 3

test: lint types unit  ## everything CI runs: ruff, mypy, pytest with coverage

lint: $(READY)  ## ruff: lint and format; import-linter: who may know whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYTHONPATH=src $(BIN)/lint-imports --no-logo

types: $(READY)  ## mypy, strict
	$(BIN)/mypy

unit: $(READY)  ## pytest with coverage
	$(BIN)/python -m pytest -n auto -m "not slow and not gpu and not hostile and not federation" --cov --cov-report=term:skip-covered

test-slow: $(READY)  ## the tests that take minutes
	$(BIN)/python -m pytest -m "slow and not gpu and not hostile and not federation"

KILLS ?= 100
CASES ?= 20000
SEED ?= 0
test-hostile: $(READY)  ## random kills, full disks, damaged input; KILLS=200 CASES=5000 SEED=7 choose how many and which
	ACCORD_KILLS=$(KILLS) ACCORD_CASES=$(CASES) ACCORD_SEED=$(SEED) $(BIN)/python -m pytest tests/hostile -s -m hostile

test-federation: $(READY)  ## real federations on Flower: faults, strangers, every method (many minutes)
	$(BIN)/python -m pytest -m federation

test-gpu:  ## the tests that need a CUDA device, with the python that sees it
	PYTHONPATH=src:tests $(PYTHON) -m pytest tests/gpu -m gpu

mutants: $(READY)  ## does a test fail when the code is wrong? the kept list; DRAW=6 SEED=3: fresh ones per folder; LIST=FILE: your own
	$(BIN)/python scripts/mutants.py $(if $(DRAW),--draw $(DRAW) --seed $(or $(SEED),0)) $(if $(LIST),--list $(LIST)) $(if $(REACH),--reach $(REACH))

fingerprints: $(READY)  ## do all methods still give the bits they gave? (about three minutes)
	PYTHONPATH=src $(BIN)/python scripts/fingerprints.py

tables: $(READY)  ## write the tables in docs/methods.md, docs/method_costs.md and docs/privacy.md
	PYTHONPATH=src $(BIN)/python scripts/method_table.py
	PYTHONPATH=src $(BIN)/python scripts/filter_table.py

results: $(READY)  ## write docs/results from the records in results/
	PYTHONPATH=src $(BIN)/python -m accord reproduce --pages

docs: $(READY)  ## the documentation site, into build/site: open build/site/index.html, no server is needed
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=src $(BIN)/python -m mkdocs build

docs-serve: $(READY)  ## the same while you write, on http://127.0.0.1:8000
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=src $(BIN)/python -m mkdocs serve --livereload

format: $(READY)  ## let ruff format and fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)  ## rounds per second against a bare PyTorch loop
	$(BIN)/python benchmarks/bench_engine.py

.data/peers/.ready: benchmarks/peers/setup.py constraints.txt
	$(PYTHON) benchmarks/peers/setup.py

bench-peers: $(READY) .data/peers/.ready  ## the same rounds on Flower, pfl-research, bare loops and Accord
	$(BIN)/python benchmarks/bench_peers.py

bench-scale: $(READY)  ## time and memory per round as clients, cohort and model grow
	$(BIN)/python benchmarks/bench_scale.py

clean:  ## remove what make made
	rm -rf $(VENV) build dist src/*.egg-info .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis
