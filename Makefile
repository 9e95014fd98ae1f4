# make run      everything, then the job: the three archetypes, judged on the CPU over the default suite
# make test     everything, then style, types, the import law and the tests that are not slow
# make test-all make test with the slow tests: those of more than five seconds, and every case of large families
# make quick    style, types, the import law and the tests that tell most, in less than a minute
# make library  every built-in task, item by item: its declaration, its figures, its self-test (in part by make test)
# make attacks  every specimen of an attack and of an honest pattern, and what the judge makes of it
# make tasks-selftest
#               every built-in task: its reference passes, planted bugs do not; goes on where it was stopped
# make gpu      the measurements that need an NVIDIA GPU
#
# A fresh machine needs Python 3.11 or newer and a C++ compiler. PYTHON and CXX choose others than those found;
# pip's own settings (PIP_INDEX_URL, PIP_FIND_LINKS ...) choose where packages come from, and with them the build of
# PyTorch. Steps leave stamps in .venv, so that a second call starts with the job.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV ?= .venv
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && exit; done; echo python3)
CXX ?= g++
# Tests beside one another: on two processors three keep both busy, for tests wait for processes and deadlines.
WORKERS ?= 3
ARGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile -c constraints.txt
# On every processor, which pip's own compiling is not, and only what workers import, who may write nothing: each would
# compile it anew. The rest is compiled by whoever imports it first. PyTorch is compiled while pip installs the rest.
COMPILE := $(BIN)/python -m compileall -q -j 0 -x '/tests/|/testing/_internal/' \
	$(addprefix $(VENV)/lib/python3.*/site-packages/,torch triton numpy numba llvmlite sympy mpmath) >/dev/null || true
SOURCES := src tests
SERIAL = $(shell grep -rl --include='test_*.py' 'mark\.serial' tests)
LIBRARY := tests/tasks/test_library.py
# The parts where a mistake shows most often: imports, plugins, replay lines, what the comparison must not let pass, the
# store, the look-up of tasks. None measures time.
QUICK := tests/test_imports.py tests/test_registry.py tests/judge/test_replay.py tests/store/test_store.py \
	tests/judge/test_comparison.py::test_narrow_arithmetic_in_an_fp32_task_fails tests/tasks/test_discovery.py

.PHONY: help run test test-all quick library attacks tasks-selftest gpu fmt lint clean tools

help:
	@sed -n '/^#/!q;s/^# \{0,1\}//p' Makefile

# ----------------------------------------------------------------------------------------------------------------------
# Set-up
# ----------------------------------------------------------------------------------------------------------------------

tools:
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  found=$$("$(PYTHON)" -V 2>/dev/null || echo "not there"); \
	  echo "error: KernelEval needs Python 3.11 or newer, and $(PYTHON) is $$found:" \
	    "install it, or name one: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "error: $(PYTHON) has no venv module; install it (Debian: apt-get install python3-venv)" >&2; exit 2; }
	@command -v "$(firstword $(CXX))" >/dev/null || { \
	  echo "error: no C++ compiler: $(CXX) is not on PATH; install g++ (Debian: apt-get install g++)," \
	    "or name one: make CXX=clang++ $(MAKECMDGOALS)" >&2; exit 2; }

$(VENV)/.made: | tools
	"$(PYTHON)" -m venv $(VENV)
	@touch $@

# PyTorch by itself first: it is most of the download, and changes of our own dependencies do not touch it.
$(VENV)/.torch: constraints.txt $(VENV)/.made
	@echo "installing PyTorch (once; a few minutes)"
	$(PIP) torch==2.13.0
	@touch $@

$(VENV)/.installed: pyproject.toml $(VENV)/.torch
	@echo "installing everything else (once; a minute)"
	@$(COMPILE) & $(PIP) -e '.[torch,report,analysis]'; wait
	@$(COMPILE)
	@touch $@

$(VENV)/.installed-dev: pyproject.toml $(VENV)/.torch
	@echo "installing everything else (once; a minute)"
	@$(COMPILE) & $(PIP) -e '.[dev]'; wait
	@$(COMPILE)
	@touch $@ $(VENV)/.installed

# ----------------------------------------------------------------------------------------------------------------------
# Jobs
# ----------------------------------------------------------------------------------------------------------------------

run: export PYTHONDONTWRITEBYTECODE :=
run: $(VENV)/.installed | tools
	$(BIN)/kerneleval run --quick $(ARGS)

# The serial tests measure time or load the machine: they run alone, first. Both parts always run; pytest has the last
# word, and lists what it skipped (the GPU tier, where there is no GPU) with the reason. Compiled tests are kept, whatever
# Python is told: each process would compile them anew.
test: export PYTHONDONTWRITEBYTECODE :=
test: lint
	@status=0; \
	$(BIN)/python -m pytest -m serial $(or $(ARGS),$(SERIAL)) || { status=$$?; [ $$status != 5 ] || status=0; }; \
	$(BIN)/python -m pytest -m 'not serial' -n $(WORKERS) --dist worksteal $(ARGS) || status=$$?; \
	exit $$status

test-all: export KERNELEVAL_TEST_SLOW := 1
test-all: test

library: export PYTHONDONTWRITEBYTECODE :=
library: export KERNELEVAL_TEST_SLOW := 1
library: $(VENV)/.installed-dev | tools
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(LIBRARY)

# Types are checked beside the tests.
quick: export PYTHONDONTWRITEBYTECODE :=
quick: $(VENV)/.installed-dev | tools
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check $(SOURCES)
	@log=$$(mktemp); { $(BIN)/mypy && $(BIN)/lint-imports --no-logo; } >"$$log" 2>&1 & types=$$!; status=0; \
	$(BIN)/python -m pytest -q -n $(WORKERS) -m 'not serial' $(or $(ARGS),$(QUICK)) || status=$$?; \
	wait $$types || status=$$?; cat "$$log"; rm -f "$$log"; exit $$status

attacks: $(VENV)/.installed-dev | tools
	$(BIN)/python -m tests.attacks $(ARGS)

tasks-selftest: $(VENV)/.installed | tools
	$(BIN)/python -m benchmarks.tasks_selftest $(ARGS)

lint: $(VENV)/.installed-dev | tools
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy --num-workers 2
	$(BIN)/lint-imports --no-logo

gpu:
	bash scripts/gpu.sh $(ARGS)

fmt: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
