# Everything that a person or CI runs is here. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := test
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
IMG ?= inferno-operator:latest
KEEP ?=
ARGS ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (once; about a minute)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "inferno needs Python 3.11 or newer; name one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --constraint constraints.txt pip
	@$(BIN)/pip install --quiet --constraint constraints.txt --group dev --editable .
	@touch $@

.PHONY: setup
setup: $(READY) ## Make the virtual environment that everything runs in

.PHONY: demo
demo: $(READY) ## See it work on a real control plane (KEEP=1 leaves it running)
	@$(BIN)/python -m tests.demo $(if $(KEEP),--keep)

.PHONY: demo-stop
demo-stop: $(READY) ## Stop what `make demo KEEP=1` left running
	@$(BIN)/python -m tests.demo --stop

.PHONY: test
test: lint type control-plane ## Run every check and every test
	$(BIN)/pytest $(ARGS)

.PHONY: unit-test
unit-test: $(READY) ## Run the tests that need nothing but Python (seconds)
	$(BIN)/pytest -m "not cluster and not slow and not bench" $(ARGS)

.PHONY: cluster-test
cluster-test: control-plane ## Run the tests on a real control plane
	$(BIN)/pytest -m cluster $(ARGS)

.PHONY: control-plane
control-plane: $(READY) ## Find or build etcd, kube-apiserver and kubectl
	@$(BIN)/python -m tests.controlplane

.PHONY: format
format: $(READY) ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: lint
lint: $(READY) ## Check style and the direction of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

.PHONY: type
type: $(READY) ## Check types
	$(BIN)/mypy

.PHONY: crds
crds: $(READY) ## Generate crds/ from the models in operator/inferno_operator/resources
	$(BIN)/python -m inferno_operator.crds crds

.PHONY: bench
bench: $(READY) ## Measure
	$(BIN)/pytest -m bench $(ARGS)

.PHONY: constraints
constraints: ## Pin the newest versions that pyproject.toml allows
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --upgrade pip
	@$(BIN)/pip install --quiet --group dev --editable .
	@{ echo "# The versions that CI tests. Made by 'make constraints'."; \
	   $(BIN)/pip freeze --all --exclude-editable --exclude setuptools; } > constraints.txt
	@touch $(READY)

.PHONY: docker-build
docker-build: ## Build the image (IMG=name:tag)
	docker build --tag $(IMG) .

.PHONY: clean
clean: ## Remove what the other targets made (not the cached control plane)
	rm -rf $(VENV) dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks
