PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
# Nothing is reported to the makers of the tools.
export MLFLOW_DISABLE_TELEMETRY := true

.DEFAULT_GOAL := help
.PHONY: help venv demo data test test-full lint size format docs ui bench

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

.venv/installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or later is needed: make PYTHON=/path/to/it")'
	@echo "Installing into .venv (a few minutes the first time) …"
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

.venv/ray-installed: requirements-ray.lock .venv/installed
	@$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-ray.lock
	@touch $@

venv: .venv/installed  ## the project's own environment, from the lock file

demo: venv  ## four algorithms on real data, compared
	@$(BIN)/kedro study quickstart

data: venv  ## versioned splits and headline result, fetched (REMOTE=/path/to/store) or made
	@[ -z "$(REMOTE)" ] || $(BIN)/dvc remote modify --local store url "$(REMOTE)"
	@PATH="$(CURDIR)/$(BIN):$$PATH" dvc repro --pull

lint: venv  ## style, layer contracts, types, declared dependencies
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/deptry src
	$(BIN)/python -m tools.size

size: venv  ## lines of each room, beside the ceilings in pyproject.toml
	@$(BIN)/python -m tools.size

format: venv  ## rewrite the code in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: lint  ## lint and tests, and which of them took longest
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n 2 -m "not full" --durations=20

test-full: lint .venv/ray-installed  ## the slow tests too, with Ray; coverage
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n 2 --cov --cov-report=term

.venv/docs-installed: requirements-docs.lock .venv/installed
	@$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-docs.lock
	@touch $@

docs: .venv/docs-installed  ## the documentation as a site, into site/
	$(BIN)/mkdocs build --strict --quiet
	@$(BIN)/kedro viz build > /dev/null && mv build site/pipelines

benchmarks/.venv/installed: benchmarks/requirements.lock
	@echo "Installing the peers into benchmarks/.venv (a few minutes the first time) …"
	@$(PYTHON) -m venv benchmarks/.venv
	@benchmarks/.venv/bin/pip install --quiet --disable-pip-version-check -r $<
	@benchmarks/.venv/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

bench: benchmarks/.venv/installed  ## speed and memory next to the peers', into benchmarks/results
	benchmarks/.venv/bin/python -m benchmarks

ui: venv  ## MLflow's pages about the runs
	@$(BIN)/kedro ui
