# Each target makes its own .venv on a fresh machine. Another Python: make test PYTHON=python3.13 VENV=../venv313
PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?=
# Most of a test is compiling, which uses one core: as many workers as cores halve the time.
WORKERS ?= 2

BIN := $(VENV)/bin
# Compiled programs are kept between tests and between runs: most of a test's time is XLA compiling.
# Python's own of the package and of the tests likewise, whatever the environment says: they are read by both workers, by the
# processes that tests start, and by what is run next.
CACHE := JAX_COMPILATION_CACHE_DIR=$(CURDIR)/.cache/jax JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0.1 PYTHONDONTWRITEBYTECODE=
# The folders that become subpackages of topiczoo, and where mypy finds them laid out so.
FOLDERS := models inference diagnostics corpora
TYPING := .cache/typing/topiczoo

.PHONY: help demo test test-slow test-longest mutants wheel lint format bench tutorials docs clean
.DELETE_ON_ERROR:

help:
	@echo "make demo        fit a model to the embedded corpus and report on it"
	@echo "make test        the tests; make test-slow adds the exact posteriors of more edited stories"
	@echo "make test-longest   scikit-learn's checks of every estimator, every page of the documentation: most of an hour"
	@echo "make mutants     plant mistakes in a copy, one at a time: do the tests notice?"
	@echo "make wheel       build the wheel and use it from an environment and a folder of its own"
	@echo "make lint        ruff and mypy; make format repairs what ruff can"
	@echo "make bench       speed beside other packages"
	@echo "make tutorials   execute the tutorials and write their notebooks"
	@echo "make docs        build the site, offline and without a warning: build/site/html"
	@echo "make clean       remove caches and builds, keep $(VENV)"

# The stamp is written last. An environment without it is finished if its pip works and made anew if not.
$(VENV)/.stamp-test: pyproject.toml
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --editable ".[test]"
	touch $@

$(VENV)/.stamp-bench: $(VENV)/.stamp-test
	$(BIN)/python -m pip install --quiet --editable ".[test,bench]"
	touch $@

$(VENV)/.stamp-docs: $(VENV)/.stamp-test
	$(BIN)/python -m pip install --quiet --editable ".[test,docs]"
	touch $@

demo: $(VENV)/.stamp-test
	$(BIN)/topiczoo demo --force

test: $(VENV)/.stamp-test
	$(CACHE) $(BIN)/pytest -n $(WORKERS) --dist loadscope --no-loadscope-reorder -m "not slow and not longest" $(PYTEST_ARGS)

test-slow: $(VENV)/.stamp-test
	$(CACHE) $(BIN)/pytest -n $(WORKERS) --dist worksteal -m "slow and not longest" $(PYTEST_ARGS)

test-longest: $(VENV)/.stamp-test
	$(CACHE) $(BIN)/pytest -n $(WORKERS) --dist worksteal -m longest $(PYTEST_ARGS)

mutants: $(VENV)/.stamp-test
	$(CACHE) $(BIN)/python tests/mutants/run.py --workers $(WORKERS) $(MUTANTS)

wheel: $(VENV)/.stamp-test
	rm -rf .cache/wheel
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir .cache/wheel .
	$(PYTHON) -m venv .cache/wheel/venv
	.cache/wheel/venv/bin/python -m pip install --quiet .cache/wheel/topiczoo-*.whl
	cd / && $(CURDIR)/.cache/wheel/venv/bin/python -P $(CURDIR)/.ci/installed.py $(CURDIR)
	rm -rf .cache/wheel build/lib build/bdist.* topiczoo.egg-info

lint: $(VENV)/.stamp-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf $(TYPING) && mkdir -p $(TYPING)
	ln -s $(addprefix $(CURDIR)/,$(FOLDERS) topiczoo/commands topiczoo/estimators) $(CURDIR)/topiczoo/*.py $(TYPING)/
	$(BIN)/mypy
	$(BIN)/python .ci/paths.py

format: $(VENV)/.stamp-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.stamp-bench
	$(BIN)/python benchmarks/speed.py

tutorials: $(VENV)/.stamp-test
	$(CACHE) $(BIN)/python tutorials/build.py

docs: $(VENV)/.stamp-docs
	$(CACHE) $(BIN)/python docs/site/build.py

clean:
	rm -rf .cache .pytest_cache .mypy_cache .ruff_cache build dist *.egg-info
	find topiczoo $(FOLDERS) $(wildcard tests tutorials benchmarks docs) -name __pycache__ -type d -prune -exec rm -rf {} +
