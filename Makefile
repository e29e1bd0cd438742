# Needs Python >= 3.11 with pip, and make. Everything is installed into .venv, in the versions of requirements.lock.
PYTHON ?= python3
VENV := .venv
BIN := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
RUN := $(VENV)/$(BIN)
# The environments are made without pip inside them, so that Debian's Python needs no extra package.
ENVIRONMENT := $(PYTHON) -m venv --clear --without-pip
PIP := $(PYTHON) -m pip --disable-pip-version-check --python
# A torch of this version that pip knows of besides the index, such as a build for the CPU, is preferred.
TORCH := torch==2.13.0 torchvision==0.28.0
# One BLAS thread per test worker: small matrices on many workers only wait for each other. Compiled modules are kept
# even where the surroundings say not to: every worker would compile them again.
SETTINGS := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=

.PHONY: demo test test-fast lint docs bench lock wheel test-no-extras test-minimum clean

demo: $(VENV)/run.done
	$(RUN)/fairerclip demo --output demo

# Linters, types, the order of imports, and all tests, with the share of the code that they run.
test: lint
	$(SETTINGS) $(RUN)/python -m slipcover --source src/fairerclip --json --out $(VENV)/coverage.json -m pytest
	@$(RUN)/python -c 'import json; print("coverage: %(percent_covered).1f %%" % json.load(open("$(VENV)/coverage.json"))["summary"])'

# The tests without the marker slow: about a minute.
test-fast: $(VENV)/dev.done
	$(SETTINGS) $(RUN)/python -m pytest -m "not slow"

lint: $(VENV)/dev.done
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/codespell
	$(RUN)/mypy
	$(RUN)/lint-imports --no-logo

# The site in docs/_build/html; pictures and examples are run. A warning is an error.
docs: $(VENV)/dev.done
	rm -rf docs/reference/generated
	$(RUN)/python -m sphinx -W --keep-going docs docs/_build/html

# Ratios with targets, docs/benchmarks/speed.md: some minutes.
bench: $(VENV)/dev.done
	$(RUN)/python benchmarks/run.py

# Versions stay as they are where they still fit; `make lock UV=--upgrade` takes the newest.
lock:
	$(ENVIRONMENT) $(VENV)-lock
	$(PIP) $(VENV)-lock/$(BIN)/python install --quiet uv
	$(VENV)-lock/$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-annotate --extra dev \
	  --no-emit-package torch --no-emit-package torchvision --custom-compile-command "make lock" $(UV) \
	  --output-file requirements.lock pyproject.toml

# The wheel and the source archive in dist; the wheel is tried in an empty environment.
wheel: $(VENV)/dev.done $(VENV)/versions.txt
	rm -rf dist
	$(RUN)/python -m hatchling build
	$(ENVIRONMENT) $(VENV)-wheel
	$(PIP) $(VENV)-wheel/$(BIN)/python install --quiet --constraint $(VENV)/versions.txt dist/*.whl
	$(VENV)-wheel/$(BIN)/fairerclip demo --output demo

# The quick tests without any optional library: what needs one says so in one line.
test-no-extras: $(VENV)/versions.txt
	$(ENVIRONMENT) $(VENV)-no-extras
	$(PIP) $(VENV)-no-extras/$(BIN)/python install --quiet --constraint $< --editable '.[test]'
	$(SETTINGS) $(VENV)-no-extras/$(BIN)/python -m pytest -m "not slow"

# The quick tests with the oldest versions that pyproject.toml allows; needs Python 3.11.
test-minimum:
	$(ENVIRONMENT) $(VENV)-minimum
	$(PIP) $(VENV)-minimum/$(BIN)/python install --quiet uv
	$(VENV)-minimum/$(BIN)/uv pip compile --quiet --resolution lowest-direct --python-version 3.11 \
	  --extra all --extra torch --extra open-clip --extra transformers --output-file $(VENV)-minimum/versions.txt pyproject.toml
	$(PIP) $(VENV)-minimum/$(BIN)/python install --quiet --constraint $(VENV)-minimum/versions.txt --editable '.[test,all,encoders]'
	$(SETTINGS) $(VENV)-minimum/$(BIN)/python -m pytest -m "not slow"

clean:
	rm -rf $(VENV) $(VENV)-* demo build dist docs/_build docs/gallery docs/reference/commands docs/reference/generated \
	  .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

# Versions alone: pip takes hashes only where a whole file is installed.
$(VENV)/versions.txt: requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	mkdir -p $(VENV)
	sed -n 's/^\([a-z0-9].*[^ ]\) *\\$$/\1/p' requirements.lock > $@

$(VENV)/made: $(VENV)/versions.txt
	test -e $@ || $(PYTHON) -m venv --without-pip $(VENV)
	@touch $@

# What the package needs and no extra.
$(VENV)/run.done: pyproject.toml $(VENV)/made
	$(PIP) $(RUN)/python install --quiet --constraint $(VENV)/versions.txt --editable .
	@touch $@

# All that is locked, checked by its hashes, and torch, whose builds the lock does not choose between.
$(VENV)/dev.done: pyproject.toml $(VENV)/made
	$(PIP) $(RUN)/python install --quiet --require-hashes --no-deps --requirement requirements.lock
	$(PIP) $(RUN)/python install --quiet $(TORCH)
	$(PIP) $(RUN)/python install --quiet --no-deps --no-build-isolation --editable .
	$(PIP) $(RUN)/python check
	@touch $@ $(VENV)/run.done
