# make demo   set everything up and run the built-in demo
# make test   set everything up, then lint, types, tests and examples
# make lint   formatting, lint and types alone
# make bench  the benchmarks that run on a CPU

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP_FLAGS ?= -q --disable-pip-version-check

.PHONY: setup servers demo test test-all lint bench clean

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install $(PIP_FLAGS) -c constraints.txt "torch==$$(sed -n 's/^torch==//p' constraints.txt)"
	$(BIN)/pip install $(PIP_FLAGS) -c constraints.txt -e '.[dev]'
	touch $@

servers:
	sh tests/install_servers.sh

demo: setup
	$(BIN)/coterie run

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: lint servers
	$(BIN)/python -m pytest -n 2 -m "not slow"
	$(BIN)/python tests/run_examples.py

test-all: lint servers
	$(BIN)/python -m pytest -n 2
	$(BIN)/python tests/run_examples.py

bench: setup
	$(BIN)/python benchmarks/round_speed.py
	$(BIN)/python benchmarks/thousand_nodes.py
	$(BIN)/python benchmarks/many_clients.py
	$(BIN)/python benchmarks/engine_choice.py
	$(BIN)/python benchmarks/link_speed.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
