# Needs Python >= 3.11 with pip, and make. Everything is installed into .venv from pinned versions.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
REAL_DATA ?= ../shared/data
# Tests use the kernels of one processor (AVX2), so that recorded outputs are the same to the last digit shown on every newer one;
# `make test KERNEL=` uses those of this processor, and skips what was recorded.
KERNEL ?= Haswell
# One BLAS thread per test worker: small matrices on many workers only wait for each other.
ONE_THREAD := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(if $(KERNEL),OPENBLAS_CORETYPE=$(KERNEL))
# Tests keep compiled modules even where the surroundings say not to: workers, and the processes that tests start, would
# compile all of them again.
COMPILED := PYTHONDONTWRITEBYTECODE=

.PHONY: field audit-dependencies install-locked lock properties sbom wheel wheel-check choice demo docs test test-fast test-no-extras test-minimum lint bench bench-full bench-table coverage interrupts abuse fuzz fuzz-guided crash mutants \
	picture proofs rankings real reproduce clean

# The environment is made without pip inside it, so that Debian's Python needs no extra package.
$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv --without-pip $(VENV)

# Archives are checked by the hashes in requirements/, for every Python and system; docs/development/releasing.md#hashes.
$(VENV)/run.done: pyproject.toml requirements/run.txt requirements/build.txt | $(BIN)/python
	$(PYTHON) -m pip --python $(BIN)/python install --quiet --require-hashes -r requirements/run.txt -r requirements/build.txt
	$(PYTHON) -m pip --python $(BIN)/python install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/dev.done: pyproject.toml constraints.txt | $(BIN)/python
	$(PYTHON) -m pip --python $(BIN)/python install --quiet --constraint constraints.txt --editable '.[dev,all]'
	@touch $@ $(VENV)/run.done

# The documentation: its snippets are run, then it is built with pictures and examples that are run, too. A snippet that
# fails, a broken link or a missing reference is an error. Three minutes.
docs: $(VENV)/dev.done
	$(COMPILED) $(ONE_THREAD) $(BIN)/python -m pytest tests/report/test_docs.py tests/package/test_site.py -k python_of
	$(ONE_THREAD) $(BIN)/python -m sphinx -W --keep-going docs docs/_build/html

demo: $(VENV)/run.done
	$(BIN)/fairerclip demo --output demo

lint: $(VENV)/dev.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

test: lint
	$(COMPILED) $(ONE_THREAD) $(BIN)/python -m pytest -m "not proof"

# The long tests, which tests/proofs.txt lists: hostile files, clusters whose workers are killed, interrupts, how often
# intervals hold the truth, real faces, the whole site. About six minutes on two cores.
proofs: $(VENV)/dev.done
	$(COMPILED) $(ONE_THREAD) $(BIN)/python -m pytest -m proof

# The quick part, about a minute on two cores: neither linters nor what tests/slow.txt lists, that is encoders, the page in
# a browser, hostile files, recorded outputs, and the functions that took longest.
test-fast: $(VENV)/dev.done
	$(COMPILED) $(ONE_THREAD) $(BIN)/python -m pytest -m "not slow"

# The quick part and the demo without any optional library: what needs one says so in one line.
test-no-extras:
	$(PYTHON) -m venv --clear $(VENV)-no-extras
	$(VENV)-no-extras/bin/pip install --quiet --constraint constraints.txt --editable '.[test]'
	$(VENV)-no-extras/bin/fairerclip demo --output demo
	$(COMPILED) $(ONE_THREAD) $(VENV)-no-extras/bin/python -m pytest -m "not slow"

# The quick part and the tests of encoders with the oldest versions that are allowed; needs Python 3.11.
test-minimum:
	$(PYTHON) -m venv --clear $(VENV)-minimum
	$(VENV)-minimum/bin/pip install --quiet --constraint constraints-minimum.txt --editable '.[test,all]'
	$(COMPILED) $(ONE_THREAD) $(VENV)-minimum/bin/python -m pytest -m "not slow"
	$(COMPILED) $(ONE_THREAD) $(VENV)-minimum/bin/python -m pytest tests/encoders

# How fast it is, as ratios with targets: docs/benchmarks/speed.md. The quick ones take some minutes on two cores; all of them
# take hours, 6 GB of memory and 10 GB of disk. Results are kept by version in benchmarks/results, and what became
# slower than in the latest earlier version is printed; bench-table writes them into the page.
bench: $(VENV)/dev.done
	$(BIN)/python benchmarks/run.py quick

bench-full: $(VENV)/dev.done
	$(BIN)/python benchmarks/run.py full

bench-table: $(VENV)/dev.done
	$(BIN)/python benchmarks/table.py

# Share of intervals that contain the true value, in SETS simulated data sets; docs/math.md#intervals. The tests count a few.
SETS ?= 1000
coverage: $(VENV)/dev.done
	$(ONE_THREAD) $(BIN)/python benchmarks/coverage_groups.py --sets $(SETS)
	$(ONE_THREAD) $(BIN)/python benchmarks/coverage_dependence.py --sets $(SETS)
	$(ONE_THREAD) $(BIN)/python benchmarks/coverage_retrieval.py --sets $(SETS)

# Commands stopped by Ctrl-C and SIGTERM at random moments, twenty times each: how they end. Needs Linux.
interrupts: $(VENV)/dev.done
	$(ONE_THREAD) $(BIN)/python tests/interrupts.py

# Hostile files, each with what refusing it costs. Needs Linux.
abuse: $(VENV)/dev.done
	$(ONE_THREAD) $(BIN)/python tests/hostile/abuse.py

# Damaged files for every reader, CASES each, and changed results of audits: about 15 minutes on one core. Needs Linux.
CASES ?= 4500
fuzz: $(VENV)/dev.done
	$(ONE_THREAD) $(BIN)/python tests/hostile/fuzz.py run --cases $(CASES)
	$(ONE_THREAD) DOCUMENTS=400 $(BIN)/python -m pytest tests/report/test_fuzz_results.py

# Odd arrays for every estimator, EXAMPLES new ones of each property (or all that there are); 4 minutes on one core.
EXAMPLES ?= 2000
properties: $(VENV)/dev.done
	$(ONE_THREAD) EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest tests/properties

# The same with bytes chosen by the branches that they reach; what reaches new ones is kept in tests/hostile/corpus.
RUNS ?= 5000
$(VENV)/fuzz.done: $(VENV)/dev.done
	$(PYTHON) -m pip --python $(BIN)/python install --quiet --constraint constraints.txt --editable '.[fuzz]'
	@touch $@

fuzz-guided: $(VENV)/fuzz.done
	$(ONE_THREAD) $(BIN)/python tests/hostile/fuzz.py guided --cases $(RUNS)

# Commands killed (SIGKILL) at every system call that changes files, and at random moments: what they leave. Needs Linux
# and strace; about 10 minutes.
crash: $(VENV)/dev.done
	$(ONE_THREAD) PYTHONPATH=tests $(BIN)/python tests/crash.py

# The source of five rooms with one thing changed at a time, MUTANTS of each room drawn by SEED: the share that a test of
# the room notices, and those that none does. Verdicts are kept in mutants.json and taken up again. Needs Linux; about
# 15 minutes on one core.
MUTANTS ?= 40
SEED ?= 0
mutants: $(VENV)/dev.done
	$(ONE_THREAD) $(BIN)/python tests/mutants.py --count $(MUTANTS) --seed $(SEED)

# Every method on resampled splits of real embeddings, the tables of docs/benchmarks/comparison.md: about 15 minutes on two cores for
# each of the first three splits, which train by gradient, too, and 6 for each further one, so two hours and a half for
# 20, and then degrade.py. Runs are kept in RESAMPLED and taken up again.
RESAMPLED ?= resampled
SPLITS ?= 20
TASKS := $(addprefix $(REAL_DATA)/,celeba_blond.npz celeba_cheekbones.npz celeba_attractive.npz pacs.npz)
real: $(VENV)/dev.done
	$(BIN)/python benchmarks/resampled.py run $(TASKS) -o $(RESAMPLED) --splits $(SPLITS)
	$(BIN)/python benchmarks/resampled.py rank $(REAL_DATA)/fairface.npz -o $(RESAMPLED) --splits $(SPLITS)
	$(BIN)/python benchmarks/resampled_table.py $(RESAMPLED) $(TASKS)
	$(BIN)/python benchmarks/degrade.py $(REAL_DATA)

# Every method on resampled splits of the four tasks and of the gallery, the tables of docs/field.md: about 20 core minutes for each split, and 35
# more for each of the first five, which train by gradient. Runs are kept in FIELD and taken up again; those of the
# results of this version are unpacked first, and all are packed at the end.
FIELD ?= field
GALLERY := --queries $(REAL_DATA)/fairface_queries.npz --unrelated $(REAL_DATA)/pacs.npz
field: $(VENV)/dev.done
	$(BIN)/python benchmarks/field.py restore $(FIELD)
	for task in celeba_blond celeba_cheekbones celeba_attractive pacs; do \
	  $(BIN)/fairerclip compare $(REAL_DATA)/$$task.npz --splits $(SPLITS) --overwrite -o $(FIELD)/$$task || exit 1; done
	for name in sex race; do $(BIN)/fairerclip compare $(REAL_DATA)/fairface.npz --sensitive $$name $(GALLERY) \
	  --splits $(SPLITS) --overwrite -o $(FIELD)/gallery-$$name || exit 1; done
	$(BIN)/python benchmarks/field.py keep $(FIELD)
	$(BIN)/python benchmarks/field.py write $(FIELD)

# FairerCLIP as it comes and searched against other methods that choose on the same rows, with many labels, few, or none:
# the first tables of docs/benchmarks/comparison.md; about two hours on two cores. Runs are kept in CHOICE and taken up again.
CHOICE ?= choice
choice: $(VENV)/dev.done
	$(BIN)/python benchmarks/choice.py run $(REAL_DATA) -o $(CHOICE) --splits $(SPLITS)
	$(BIN)/python benchmarks/choice.py table -o $(CHOICE)

# Rankings by free queries before and after mitigation of embeddings, the figures of docs/benchmarks/rankings.md: about 10 minutes on two
# cores. concept-erasure takes part if it is installed.
rankings: $(VENV)/dev.done
	$(BIN)/python benchmarks/rankings.py $(REAL_DATA) -o rankings.json

# The paper's tables and figures on real embeddings, the pages of docs/reproduction: about 20 minutes on two cores.
# Runs are kept in REPRODUCTION and taken up again.
REPRODUCTION ?= reproduction
reproduce: $(VENV)/dev.done
	$(BIN)/fairerclip reproduce all --suite $(REAL_DATA) -o $(REPRODUCTION) --overwrite

# The picture of the README.
picture: $(VENV)/dev.done
	$(BIN)/python tools/before_after.py

# Supply chain (docs/development/releasing.md#hashes). The tools have an environment of their own.
TOOLS := $(VENV)-tools
$(TOOLS)/done: constraints-tools.txt
	$(PYTHON) -m venv --clear $(TOOLS)
	$(TOOLS)/bin/pip install --quiet --constraint constraints-tools.txt pip-audit cyclonedx-bom packaging
	@touch $@

# Versions of constraints.txt with the hashes of their archives, from the index that pip reads.
lock: $(VENV)/dev.done $(TOOLS)/done
	$(TOOLS)/bin/python tools/lock.py $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

# The environment of make test from archives whose hashes are known; on Linux, pip must find the CPU build of torch.
install-locked: | $(BIN)/python
	$(PYTHON) -m pip --python $(BIN)/python install --quiet --require-hashes -r requirements/dev.txt
	$(PYTHON) -m pip --python $(BIN)/python install --quiet --no-deps --no-build-isolation --editable .
	@touch $(VENV)/run.done $(VENV)/dev.done

# Known vulnerabilities of the locked versions; fails if the service does not answer.
audit-dependencies: $(TOOLS)/done
	$(TOOLS)/bin/python tools/audit.py

# The wheel, built twice under different conditions and compared.
wheel: $(VENV)/dev.done
	$(BIN)/python tools/wheel.py dist

# The wheel in an empty environment without extras.
$(VENV)-wheel/done: wheel requirements/run.txt
	$(PYTHON) -m venv --clear --without-pip $(VENV)-wheel
	$(PYTHON) -m pip --python $(VENV)-wheel/bin/python install --quiet --require-hashes -r requirements/run.txt
	$(PYTHON) -m pip --python $(VENV)-wheel/bin/python install --quiet --no-deps --no-index dist/*.whl
	@touch $@

wheel-check: $(VENV)-wheel/done
	$(VENV)-wheel/bin/python -I tools/use_wheel.py

# What an installation without extras consists of, as CycloneDX JSON.
sbom: $(VENV)-wheel/done $(TOOLS)/done
	$(TOOLS)/bin/cyclonedx-py environment --output-reproducible --output-file dist/sbom.json $(VENV)-wheel/bin/python
	$(TOOLS)/bin/python tools/check_sbom.py dist/sbom.json

clean:
	rm -rf $(VENV) mutants.json $(VENV)-no-extras $(VENV)-minimum $(VENV)-tools $(VENV)-wheel demo build dist docs/_build docs/gallery docs/reference/commands docs/reference/generated .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
