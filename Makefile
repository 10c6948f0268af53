# The project's verbs. Needs make and a Python of at least 3.11; everything else goes into .venv.

.DEFAULT_GOAL := help
SHELL := /bin/sh

VENV := .venv
BIN := $(VENV)/bin
PACKAGES := streaming_core/streaming_core writer/streaming_writer reader/streaming_reader
CODE := streaming_core writer reader tests $(wildcard conftest.py benchmarks examples)
# Setting up waits for the network more than for a processor.
MAKEFLAGS += --jobs=2
# Without bytecode on disk, each of the many processes of a test run compiles what it imports.
unexport PYTHONDONTWRITEBYTECODE
# uv installs in half a minute what takes pip four. A folder of wheels set for pip serves it too.
INSTALL := UV_FIND_LINKS="$${UV_FIND_LINKS-$$PIP_FIND_LINKS}" $(BIN)/uv pip install --quiet \
	--python $(BIN)/python --constraint constraints.txt
# Stamps say that .venv holds what these two files ask for.
DEV := $(VENV)/.installed-dev
DOCS := $(VENV)/.installed-docs
# Tests wait as well as compute: one more process than there are processors keeps those busy.
PYTEST_ARGS ?= --numprocesses $$(($$(getconf _NPROCESSORS_ONLN) + 1)) --dist loadgroup
PYTEST = $(BIN)/python -m pytest $(PYTEST_ARGS)
SERVERS = @PYTHON=$(BIN)/python tests/servers/install.sh
# What needs none of this, and one test of each kind that does.
DEFAULT_TESTS := not (process or kill or server or framework or bench or slow or soak) or essential
REST_OF_TESTS := not soak and (not ($(DEFAULT_TESTS)) or hypothesis)

.PHONY: help
help: ## list the verbs
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 12

.PHONY: demo
demo: $(DEV) ## write a data set, check it, train from it, kill and resume
	$(BIN)/python examples/demo.py
	$(BIN)/python examples/train.py

.PHONY: test
test: $(DEV) test-servers ## run the tests that answer in minutes, and the doctests of the packages
	$(PYTEST) -m "$(DEFAULT_TESTS)"

# Needs no environment, so that it is installed beside it.
.PHONY: test-servers
test-servers:
	@tests/servers/install.sh azurite nginx

.PHONY: test-rest
test-rest: $(DEV) servers ## run what `make test` leaves out, and property tests with more examples
	$(PYTEST) -m "$(REST_OF_TESTS)" --hypothesis-profile=full

.PHONY: test-all
test-all: $(DEV) servers ## run all tests, in one go
	$(PYTEST) -m "not soak" --hypothesis-profile=full

.PHONY: soak
soak: $(DEV) ## run for hours: large conversions, long training, kills at random
	$(BIN)/python -m pytest -m soak --timeout=0 -s

.PHONY: coverage
coverage: $(DEV) servers ## compare what the default tests and all tests run of the packages
	rm -rf .coverage-data && mkdir .coverage-data
	-COVERAGE_FILE=$(CURDIR)/.coverage-data/default $(BIN)/coverage run -m pytest $(PYTEST_ARGS) -q -m "$(DEFAULT_TESTS)"
	-COVERAGE_FILE=$(CURDIR)/.coverage-data/rest $(BIN)/coverage run -m pytest $(PYTEST_ARGS) -q -m "$(REST_OF_TESTS)" --hypothesis-profile=full
	@cd .coverage-data && ../$(BIN)/coverage combine --quiet --keep --data-file=.default default* && \
	  ../$(BIN)/coverage combine --quiet --keep --data-file=.all default* rest* && \
	  for suite in default all; do \
	    echo "$$suite: $$(cd .. && $(BIN)/coverage report --data-file=.coverage-data/.$$suite --format=total) %"; \
	  done

.PHONY: servers
servers: $(DEV) ## install the servers that tests run against, as far as this machine allows
	$(SERVERS) nginx sshd azurite localstack ceph swift strace xxhsum composer

.PHONY: check
check: ## everything that gates a change: lint, types, layers, all tests
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory types
	@$(MAKE) --no-print-directory layers
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory test-rest

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

$(BIN)/uv: constraints.txt | $(BIN)/python
	$(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt uv
	@touch $@

$(DEV): pyproject.toml constraints.txt | $(BIN)/uv
	$(INSTALL) --editable '.[dev]'
	@touch $@

$(DOCS): pyproject.toml constraints.txt | $(BIN)/uv
	$(INSTALL) --editable '.[docs]'
	@touch $@
