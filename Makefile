# Everything sets itself up: a fresh clone needs only make and Python 3.11 or newer.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
BUILDS := 10068 10092 10434
PYTEST := $(BIN)/python -m pytest
PARALLEL := -n logical --dist worksteal

.PHONY: help setup engines demo quick test test-all lint bench docs clean
.DEFAULT_GOAL := help

help:
	@echo "make demo      diagnose a hybrid model that does not fit, end to end (3 minutes)"
	@echo "make quick     the tests that need no engine, a sample of the larger ones (a minute)"
	@echo "make test      lint, types and the tests (12 minutes at most)"
	@echo "make test-all  test, plus Vulkan, namespaces, the wheel and everything that takes minutes"
	@echo "make bench     the measurements in bench/ (an hour)"
	@echo "make docs      docs/cli.md, and the pages about gotchas in docs/gotchas/"

$(VENV)/.ready: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[engine]' --group dev
	touch $@

setup: $(VENV)/.ready

# The engine that `arriero` finds is in .venv; the tests compare three builds side by side, each made
# to run on this machine's CPU. What is done already is not done again.
engines: setup
	@$(BIN)/python scripts/engines.py $(BUILDS)

demo: setup
	@$(BIN)/python scripts/demo.py

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --platform darwin src
	$(BIN)/mypy --platform win32 src

quick: setup
	$(PYTEST) --quick $(PARALLEL)

# Engines run one at a time: several would share the memory and the cores that a test gives to one.
test: setup engines lint
	$(PYTEST) $(PARALLEL) -m "not slow and not engine and not alone"
	$(PYTEST) -m "not slow and (engine or alone)"

# FAST=done leaves out what `make test` has just run.
test-all: $(if $(FAST),setup engines,test)
	$(PYTEST) -m slow

bench: setup engines
	$(BIN)/python -m pip install --quiet --group bench
	@for b in bench/[!_]*.py; do echo "== $$b"; $(BIN)/python $$b || exit 1; done

# docs/cli.md is kept, and a test holds it to the commands; the pages about gotchas are not kept.
docs: setup
	@$(BIN)/python scripts/gotcha_pages.py docs/gotchas
	@$(BIN)/python scripts/cli_page.py

clean:
	rm -rf docs/gotchas $(VENV) .engines .models .demo .mypy_cache .ruff_cache .pytest_cache
