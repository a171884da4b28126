# Two commands: `make train` sets up and trains, `make test` sets up and tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup train test quick lint docs tables clean
help:            ## say what there is
	@grep -hE '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed 's/: .*##/  —/'

$(READY): pyproject.toml constraints.txt
	@echo "Setting up $(VENV): the package with its dev and chem extras (a few minutes, once)."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev,chem,parquet]"
	@touch $(READY)

setup: $(READY)  ## make .venv with everything in it

train: $(READY)  ## set up, then train on the generated PATTERN sample (under a minute on two cores)
	$(BIN)/gradformer train

lint: $(READY)   ## ruff and mypy --strict
	$(BIN)/ruff check src tests benchmarks docs
	$(BIN)/mypy

test: lint       ## set up, then lint, type-check and run all tests
	TRITON_INTERPRET=1 $(BIN)/python -m pytest -n 2 --dist worksteal

quick: $(READY)  ## the tests that take seconds
	TRITON_INTERPRET=1 $(BIN)/python -m pytest -n 2 -m "not slow"

tables: $(READY) ## make the tables of README and docs from results/ and the code, and the picture
	$(BIN)/python docs/tables.py
	$(BIN)/python docs/results.py
	$(BIN)/python docs/picture.py

docs: $(READY)   ## build the documentation into site/
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[docs]"
	$(BIN)/mkdocs build --strict

clean:           ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache site
