# All commands for developers and CI. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := test
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
COMPILED := $(VENV)/.compiled
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
IMG ?= inferno-operator:$(VERSION)
OVERLAY ?= stateless
DIST ?= dist
KUBECTL ?= kubectl
CONTAINER_TOOL ?= docker
BASE ?=
RELEASE_URL ?=
ignore-not-found ?= false
# Seconds that a deletion may take.
PATIENCE ?= 120
KEEP ?=
ARGS ?=
WORKERS ?= logical
OUT ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start hundreds of interpreters, which would compile all modules again and again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (once; about a minute)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "inferno needs Python 3.11 or newer; name one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --constraint constraints.txt pip
	@$(BIN)/pip install --quiet --constraint constraints.txt --group dev --editable .
	@touch $@

.PHONY: setup
setup: $(READY) ## Create the virtual environment

.PHONY: demo
demo: ## Run a demo on a real control plane (KEEP=1 leaves it running)
	@if ! { command -v go || command -v kube-apiserver || [ -n "$${KUBEBUILDER_ASSETS:-}" ] || \
	    ls "$${XDG_CACHE_HOME:-$$HOME/.cache}"/inferno-operator/controlplane/*/kube-apiserver; } > /dev/null 2>&1; then \
	  echo "There is no Go (https://go.dev/dl), which builds the demo's control plane. What needs none, after make setup:"; \
	  echo "  .venv/bin/inferno size Qwen3-32B --rate 7/s"; \
	  echo "  .venv/bin/inferno sample --fleet | .venv/bin/inferno plan -"; \
	  exit 1; fi
	@echo "Needs .venv (once; about a minute), and etcd, kube-apiserver and kubectl: what is neither in"
	@echo "KUBEBUILDER_ASSETS nor on PATH is built by Go (once; about five minutes on two cores)."
	@echo "The demo then runs for about 20 s and needs 0.7 GiB of memory."
	@$(MAKE) --silent $(READY)
	@$(BIN)/python -m tests.demo $(if $(KEEP),--keep)

.PHONY: demo-loop
demo-loop: $(READY) ## Run the whole loop for a recorded day that passes in minutes
	@$(BIN)/python -m tests.day

.PHONY: demo-stop
demo-stop: $(READY) ## Stop what `make demo KEEP=1` left running
	@$(BIN)/python -m tests.demo --stop

# More workers than cores, limited by the memory of their control planes; WORKERS=0: no workers.
PYTEST = $(BIN)/pytest --numprocesses $(WORKERS) --maxprocesses 4

.PHONY: test
test: $(READY) ## Run the checks and the tests; show the slowest (ARGS="-k name", WORKERS=1)
	@$(MAKE) --no-print-directory --jobs 2 lint type $(COMPILED)
	$(PYTEST) -m "not extended" --durations 40 $(ARGS)

.PHONY: extended-test
extended-test: $(READY) ## Run the tests that take long by their nature
	$(PYTEST) -m "extended or hypothesis" --all-examples --durations 40 $(ARGS)

# Once, beside mypy, which leaves a core free: else each worker compiles all tests.
$(COMPILED): $(READY)
	@-$(BIN)/pytest --collect-only -qq > /dev/null
	@touch $@

.PHONY: unit-test
unit-test: $(READY) ## Run the tests that need only Python (seconds)
	$(PYTEST) -m "not cluster and not slow and not extended" --ignore tests/cluster --ignore tests/manifests \
	  --ignore tests/prometheus $(ARGS)

.PHONY: cluster-test
cluster-test: $(READY) ## Run the tests on a real control plane
	$(PYTEST) -m "cluster and not extended" $(ARGS)

.PHONY: soak
soak: $(READY) ## Run many random systems and plans, with kills, and recorded days (120 min)
	$(PYTEST) --soak tests/unit/optimizer/test_properties.py
	$(BIN)/pytest --numprocesses 0 --soak -s tests/cluster/test_workloads.py \
	  tests/cluster/test_remote_faults.py tests/cluster/test_day.py \
	  tests/cluster/test_doubling.py tests/cluster/test_traces.py \
	  -k "random_plans or namespaces_do_not_wait or nothing_is_left or doubles or recorded_days" \
	  $(ARGS)

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

# Files of other folders that the chart has copies of: Helm warns of links.
CHART_FILES := manifests/helm/inferno/files
MONITORING := manifests/kustomize/components/monitoring

.PHONY: crds
crds: $(READY) ## Generate crds/ from the models in operator/inferno_operator/resources; copies for the chart
	$(BIN)/python -m inferno_operator.resources.definitions crds
	cp crds/*.yaml $(CHART_FILES)/crds
	cp $(MONITORING)/dashboard.json $(MONITORING)/prometheus-rule.yaml $(CHART_FILES)

	@if command -v $(KUBECTL) > /dev/null; then $(MAKE) --no-print-directory yamls; \
	  else echo "without $(KUBECTL): run 'make yamls' where it is" >&2; fi

.PHONY: yamls
yamls: ## Render what deploy applies into manifests/yamls/deploy.yaml
	{ echo "# Made by 'make yamls': all that 'make deploy' applies, for kubectl apply -f."; \
	  $(KUBECTL) kustomize manifests/kustomize/overlays/stateless; } > manifests/yamls/deploy.yaml

.PHONY: screens
screens: $(READY) ## Make pictures of the console in build/screens (Chromium; ARGS=--docs: those of docs)
	@$(BIN)/python -m tests.console_screens $(ARGS)

.PHONY: docs
docs: $(READY) ## Build the documentation into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.PHONY: reference
reference: $(READY) ## Generate the reference documentation from the code
	@$(BIN)/python -m tests.reference

.PHONY: bench
bench: control-plane ## Measure the performance targets (OUT=file for JSON, ARGS="--short")
	@$(BIN)/python -m tests.bench $(if $(OUT),--json $(OUT)) $(ARGS)

.PHONY: bench-solvers
bench-solvers: $(READY) ## Compare the exact solver with HiGHS, CP-SAT and SCIP (ARGS="--seconds 8")
	@$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[solvers]'
	@$(BIN)/python -m tests.solvers $(ARGS)

.PHONY: constraints
constraints: ## Pin the newest versions that pyproject.toml allows
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --upgrade pip
	@$(BIN)/pip install --quiet --group dev --editable .
	@{ echo "# The versions that CI tests. Made by 'make constraints'."; \
	   $(BIN)/pip freeze --all --exclude-editable --exclude setuptools; } > constraints.txt
	@touch $(READY)
	@$(MAKE) --no-print-directory image-requirements

# Pins with the hashes of all files of a release, so that an image of any architecture can be built.
PIN = $(BIN)/pip-compile --quiet --generate-hashes --strip-extras --no-header --no-annotate \
  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --constraint constraints.txt

.PHONY: image-requirements
image-requirements: $(READY) ## Pin what is in the image by hash, at the versions of constraints.txt
	@$(BIN)/pip install --quiet --constraint constraints.txt --group image
	@$(PIN) --extra admission --output-file manifests/image/requirements.txt pyproject.toml
	@$(PIN) --build-deps-for wheel --only-build-deps --allow-unsafe \
	  --output-file manifests/image/build-requirements.txt pyproject.toml

.PHONY: sbom
sbom: $(READY) ## Write the bill of materials of the image to dist/sbom.json (CycloneDX)
	@mkdir -p $(DIST)
	@PYTHONWARNINGS=ignore::UserWarning $(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible \
	  --output-file $(DIST)/sbom.json manifests/image/requirements.txt
	@echo "wrote $(DIST)/sbom.json"

# Renders all manifests of an overlay with the image IMG.
RENDER = $(KUBECTL) kustomize manifests/kustomize/overlays/$(OVERLAY) \
  | sed 's|image: inferno-operator:.*|image: $(IMG)|'

.PHONY: install
install: ## Install the custom resource definitions, and take over those of another tool
	@echo "Fields of the definitions that another tool set are taken over (--force-conflicts)." \
	  "A tool that still applies them would undo this: stop it."
	$(KUBECTL) apply --server-side --force-conflicts --filename crds
	@# What is applied next would be refused before the definitions are served.
	$(KUBECTL) wait --for=condition=Established --timeout=60s --recursive=false --filename crds

.PHONY: release
release: ## Remove the operator's finalizer from every object, so that deletions can end
	@manifests/release.sh $(KUBECTL)

.PHONY: uninstall
uninstall: ## Delete the definitions and all their objects (ignore-not-found=true)
	$(KUBECTL) delete --ignore-not-found=$(ignore-not-found) --wait=false --filename crds
	@manifests/await-deletion.sh $(PATIENCE) $(KUBECTL)

.PHONY: deploy
deploy: install ## Deploy definitions and operator (IMG=name:tag OVERLAY=stateless)
	$(RENDER) | $(KUBECTL) apply --server-side --filename -

.PHONY: undeploy
undeploy: ## Delete everything that deploy created, and all objects of the definitions (OVERLAY=)
	@# Delete the operator first, because it would add its finalizer again.
	$(KUBECTL) delete --ignore-not-found=$(ignore-not-found) --cascade=foreground \
	  --timeout=$(PATIENCE)s --namespace inferno-system deployment/inferno-operator
	$(RENDER) | $(KUBECTL) delete --ignore-not-found --wait=false --filename -
	@manifests/await-deletion.sh $(PATIENCE) $(KUBECTL)
	@echo "waiting for the deletion of the namespace inferno-system and what is in it"
	$(RENDER) | $(KUBECTL) delete --ignore-not-found --timeout=$(PATIENCE)s --filename -

.PHONY: docker-build
docker-build: ## Build the image (IMG=name:tag BASE=name:tag@digest)
	@case "$(BASE)" in *@sha256:*) ;; *) \
	  echo "name the base image by digest, as docs/guides/install.md says:" \
	    "make docker-build BASE=python:3.12-slim-bookworm@sha256:..." >&2; exit 1 ;; esac
	$(CONTAINER_TOOL) build --build-arg BASE=$(BASE) --tag $(IMG) .

.PHONY: docker-push
docker-push: ## Push the image (IMG=name:tag)
	$(CONTAINER_TOOL) push $(IMG)

.PHONY: build-installer
build-installer: ## Write all that deploy applies to dist/install.yaml (IMG=name:tag OVERLAY=)
	@mkdir -p $(DIST)
	$(RENDER) > $(DIST)/install.yaml

.PHONY: dist
dist: sbom ## Make all files of a release in dist/ (IMG=name:tag BASE=...@digest RELEASE_URL=)
	@DIST=$(DIST) VERSION=$(VERSION) IMG=$(IMG) BASE=$(BASE) RELEASE_URL=$(RELEASE_URL) \
	  CONTAINER_TOOL=$(CONTAINER_TOOL) KUBECTL=$(KUBECTL) PYTHON=$(BIN)/python manifests/dist.sh

.PHONY: clean
clean: ## Remove the files of the other targets (not the cached control plane)
	rm -rf $(VENV) dist site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
