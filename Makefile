# Needs Python >= 3.11 with pip, and make. Everything is installed into .venv from pinned versions.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
REAL_DATA ?= ../shared/data
# One BLAS thread per test worker: small matrices on many workers only wait for each other.
ONE_THREAD := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

.PHONY: demo test lint bench coverage interrupts real clean

# The environment is made without pip inside it, so that Debian's Python needs no extra package.
$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv --without-pip $(VENV)

$(VENV)/run.done: pyproject.toml constraints.txt | $(BIN)/python
	$(PYTHON) -m pip --python $(BIN)/python install --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/dev.done: pyproject.toml constraints.txt | $(BIN)/python
	$(PYTHON) -m pip --python $(BIN)/python install --quiet --constraint constraints.txt --editable '.[dev,all]'
	@touch $@ $(VENV)/run.done

demo: $(VENV)/run.done
	$(BIN)/fairerclip demo --output demo

lint: $(VENV)/dev.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

test: lint
	$(ONE_THREAD) $(BIN)/python -m pytest

bench: $(VENV)/dev.done
	$(BIN)/python benchmarks/closed_form.py
	$(BIN)/python benchmarks/join.py
	$(BIN)/python benchmarks/embed.py
	$(BIN)/python benchmarks/bootstrap.py

# How often intervals hold the truth, in 1000 simulated data sets; docs/math.md#intervals.
coverage: $(VENV)/dev.done
	$(ONE_THREAD) $(BIN)/python benchmarks/coverage_groups.py

# Commands stopped by Ctrl-C and SIGTERM at random moments, twenty times each: how they end. Needs Linux.
interrupts: $(VENV)/dev.done
	$(ONE_THREAD) $(BIN)/python tests/interrupts.py

# Every method on resampled splits of real embeddings, the tables of docs/comparison.md; hours on two cores.
RESAMPLED ?= resampled
TASKS := $(addprefix $(REAL_DATA)/,celeba_blond.npz celeba_cheekbones.npz celeba_attractive.npz pacs.npz)
real: $(VENV)/dev.done
	$(BIN)/python benchmarks/resampled.py run $(TASKS) -o $(RESAMPLED) --max-seconds 5
	$(BIN)/python benchmarks/resampled.py rank $(REAL_DATA)/fairface.npz -o $(RESAMPLED)
	$(BIN)/python benchmarks/resampled_table.py $(RESAMPLED) $(TASKS)
	$(BIN)/python benchmarks/degrade.py $(REAL_DATA)

clean:
	rm -rf $(VENV) demo build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
