# One verb a line of work; each calls one tool. `make help` lists them.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
KUBERNETES ?= 1.34 1.35 1.36

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-again test-cluster test-kubernetes cluster-programs lint format format-check types layers check golden proto crds fuzz lock cover clean

help: ## list the verbs
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-17s %s\n", $$1, $$2}'

$(STAMP): requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not on PATH; install Python 3.11 to 3.13 and say e.g. make PYTHON=python3.12 setup" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

setup: $(STAMP) ## a virtual environment with everything from the lock

demo: $(STAMP) ## the whole way of a pod on an embedded cluster with two simulated nodes
	$(BIN)/gpu-sharing demo

test: $(STAMP) ## the test suite; three workers, as many tests wait rather than work
	$(BIN)/python -m pytest -n 3 --dist loadfile

test-again: $(STAMP) ## the tests that failed last time, one after the other
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures none

cluster-programs: $(STAMP) ## build the programs of a real cluster, once (16 minutes)
	$(BIN)/python -m tests.cluster.programs

test-cluster: $(STAMP) ## the tests on a real Kubernetes; root for a whole node
	GPU_SHARING_CLUSTER=1 $(BIN)/python -m pytest -n 2 --dist loadfile tests/cluster tests/chart tests/trial tests/benchmarks

test-kubernetes: $(STAMP) ## the tests on older API servers: make test-kubernetes KUBERNETES=1.35
	@for version in $(KUBERNETES); do \
	  $(BIN)/python -m tests.cluster.programs --kubernetes $$version && \
	  GPU_SHARING_CLUSTER=1 GPU_SHARING_KUBERNETES=$$version \
	    $(BIN)/python -m pytest tests/cluster tests/chart -m "cluster" || exit 1; \
	done

lint: format-check types layers ## formatting, lint rules, types, import contracts

format-check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

format: $(STAMP) ## rewrite the code as the formatter wants it
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: $(STAMP) ## mypy, strict
	$(BIN)/mypy webhook sharing certs cli embedded tests benchmarks

layers: $(STAMP) ## the import contracts of pyproject.toml
	$(BIN)/lint-imports

check: lint test ## what CI runs, without a real cluster

golden: $(STAMP) ## rewrite the golden files; read the diff
	$(BIN)/python -m pytest -n 3 --dist loadfile --update-golden

crds: $(STAMP) ## render the CRDs from the models
	$(BIN)/python -m sharing.api.crd --write deploy/crds

fuzz: $(STAMP) ## ten minutes of odd reviews against the real server
	$(BIN)/python -m tests.fuzz.campaign --seconds 600

proto: $(STAMP) ## regenerate the protocol stubs; must leave no diff
	$(BIN)/python -m sharing.plugin.proto.generate

lock: $(STAMP) ## resolve the versions again, with hashes and without addresses
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-header --extra embedded --group dev pyproject.toml -o requirements.lock

cover: $(STAMP) ## the suite with branch coverage
	$(BIN)/coverage run -m pytest && $(BIN)/coverage report --skip-covered

clean: ## remove what the verbs made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
