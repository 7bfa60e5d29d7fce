# Everything a contributor or CI runs. PYTHON is only used to make the environment.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: check test test-pages test-sglang test-sglang-long test-long test-gpu lab format lock clean

$(STAMP): requirements.lock requirements-dev.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "specdyno needs Python 3.11 or newer; make PYTHON=python3.11 …")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $@

## check: formatting, lint, types, and who may import whom
check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

## test: every test that needs neither a GPU nor the real SGLang
test: $(STAMP)
	$(BIN)/python -m pytest -q -m "not sglang and not sglang_long and not gpu and not pages"

## test-pages: reports in a headless Chromium, narrow and wide, light and dark, on paper
# Where there is no Chromium the tests are skipped; with CI=true they fail.
test-pages: $(STAMP)
	$(BIN)/python -m pytest -q -m pages tests/pages

## test-sglang: a real SGLang 0.5.23 on this CPU, through `bench run scenarios/lab.yaml`
# Where it cannot be installed the tests are skipped; with CI=true or SPECDYNO_LAB=require they fail.
test-sglang: $(STAMP)
	-$(PYTHON) tests/lab/install.py
	$(BIN)/python -m pytest -q -m sglang tests

## test-sglang-long: trees, n-grams and adaptive drafting on it, through `bench run scenarios/lab-wide.yaml`
test-sglang-long: $(STAMP) lab
	$(BIN)/python -m pytest -q -m sglang_long tests

## test-long: an hour of simulated time under random faults (about ten minutes)
test-long: $(STAMP)
	SPECDYNO_ENDURANCE_H=1 $(BIN)/python -m pytest -q -s tests/faults/test_faults_endurance.py

## test-gpu: on a machine with NVIDIA GPUs; prints what to send back (docs/hardware.md)
# SPECDYNO_GPU_SCENARIO=FILE also measures a scenario of yours, in results/test-gpu.
test-gpu: $(STAMP)
	$(BIN)/python -m pytest -q -rs -m gpu tests/gpu

## lab: install that SGLang in a virtual environment of its own (5 GB free disk)
lab:
	$(PYTHON) tests/lab/install.py

## format: what `check` asks for
format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

## lock: pin every dependency again, with hashes
lock: $(STAMP)
	$(BIN)/pip-compile -q --generate-hashes --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --strip-extras --allow-unsafe --no-header -o requirements.lock pyproject.toml
	$(BIN)/pip-compile -q --generate-hashes --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --strip-extras --allow-unsafe --no-header --extra dev -c requirements.lock -o requirements-dev.lock pyproject.toml

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
