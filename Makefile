# The project's verbs. Needs make and a Python of at least 3.11; everything else goes into .venv.

.DEFAULT_GOAL := help
SHELL := /bin/sh

VENV := .venv
BIN := $(VENV)/bin
PACKAGES := streaming_core/streaming_core writer/streaming_writer reader/streaming_reader
CODE := streaming_core writer reader tests $(wildcard conftest.py benchmarks examples)
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet --constraint constraints.txt
# Stamps say that .venv holds what these two files ask for.
DEV := $(VENV)/.installed-dev
DOCS := $(VENV)/.installed-docs
PYTEST_ARGS ?= --numprocesses auto --dist loadgroup

.PHONY: help
help: ## list the verbs
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 12

.PHONY: demo
demo: $(DEV) ## write a data set, check it, train from it, kill and resume
	$(BIN)/python examples/demo.py
	$(BIN)/python examples/train.py

.PHONY: test
test: $(DEV) servers ## run all tests and the doctests of the packages
	$(BIN)/python -m pytest $(PYTEST_ARGS)

.PHONY: test-all
test-all: $(DEV) ## test, and also against Ceph's gateway and Swift, which are installed for it
	@PYTHON=$(BIN)/python tests/servers/install.sh nginx sshd azurite localstack ceph swift
	$(BIN)/python -m pytest $(PYTEST_ARGS) --all-servers

.PHONY: servers
servers: $(DEV) ## install the servers that tests run against, as far as this machine allows
	@PYTHON=$(BIN)/python tests/servers/install.sh

.PHONY: check
check: ## everything that gates a change: lint, types, layers, test
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory types
	@$(MAKE) --no-print-directory layers
	@$(MAKE) --no-print-directory test

.PHONY: lint
lint: $(DEV) ## ruff's rules and its format
	$(BIN)/ruff check --quiet $(CODE)
	$(BIN)/ruff format --quiet --check $(CODE)

.PHONY: format
format: $(DEV) ## rewrite the code in ruff's format, with its safe fixes
	$(BIN)/ruff check --quiet --fix-only $(CODE)
	$(BIN)/ruff format $(CODE)

.PHONY: types
types: $(DEV) ## mypy over packages and tests, pyright over packages
	$(BIN)/mypy
	$(BIN)/pyright --warnings

.PHONY: layers
layers: $(DEV) ## who may import whom
	$(BIN)/lint-imports --no-logo

.PHONY: bench
bench: $(DEV) ## compare with the peers, which get an environment of their own
	benchmarks/setup_peers.sh
	$(BIN)/python benchmarks/run.py

.PHONY: defects
defects: $(DEV) ## ask other loaders and us whether promises are kept
	benchmarks/defects/setup_peers.sh
	$(BIN)/python benchmarks/defects/run.py

.PHONY: docs
docs: $(DOCS) ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

.PHONY: clean
clean: ## remove what the other verbs made, except .venv and .servers
	rm -rf build dist site .demo .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

# Idempotent: an environment that exists is kept and brought up to date.
$(BIN)/python:
	@for python in "$${PYTHON:-python3}" python3.14 python3.13 python3.12 python3.11; do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "$$python -m venv $(VENV)"; exec "$$python" -m venv $(VENV); \
	  fi; \
	done; \
	echo "no Python of at least 3.11 found; name one: make PYTHON=/path/to/python3 ..." >&2; exit 1

$(DEV): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --editable '.[dev]'
	@touch $@

$(DOCS): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --editable '.[docs]'
	@touch $@
