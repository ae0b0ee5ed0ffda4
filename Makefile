.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ROWS ?= 10000000

.PHONY: help install test lint demo docs bench bench-scale crosscheck clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

install: $(STAMP)  ## build .venv with the library and its development tools

test: $(STAMP) lint  ## lint, then all tests and doctests
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal

lint: $(STAMP)  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

demo: $(STAMP)  ## a day of the paper's stirred tank, simulated, learned, predicted: writes tank.png
	$(BIN)/srgp demo --output tank.png

docs: $(STAMP)  ## the documentation, into site/
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(STAMP)  ## measure everything beside the peers (about an hour): writes benchmarks/results and docs/benchmarks.md
	$(BIN)/python -m benchmarks.posterior
	$(BIN)/python -m benchmarks.filter
	$(BIN)/python -m benchmarks.whitening
	$(BIN)/python -m benchmarks.steps
	$(BIN)/python -m benchmarks.learning
	$(BIN)/python -m benchmarks.chains
	$(BIN)/python -m benchmarks.rates
	$(BIN)/python -m benchmarks.defaults
	$(BIN)/python -m benchmarks.memory
	$(BIN)/python -m benchmarks.streams
	$(BIN)/python -m benchmarks.kills
	$(BIN)/python -m benchmarks.report

bench-scale: $(STAMP)  ## 10⁷ rows (or ROWS=...) out of core, and one worker against two (about 20 minutes)
	$(BIN)/python -m benchmarks.scale --rows $(ROWS)
	$(BIN)/python -m benchmarks.cluster
	$(BIN)/python -m benchmarks.report

crosscheck: $(STAMP)  ## compare with GPflow, GPy and scikit-learn, each in its own environment
	$(BIN)/python -m benchmarks.crosscheck

clean:  ## remove what the other targets made
	rm -rf $(VENV) .jax_cache benchmarks/.venvs site tank.png
	find . -name __pycache__ -prune -exec rm -rf {} +
