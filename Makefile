# `make demo` and `make test` need Python 3.11+ and make, and do all of their own set-up in .venv.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# shapes beyond the shipped pair, for benchmarks and some tests
export GROMAP_DATA ?= $(abspath $(wildcard ../shared/data))

.PHONY: demo test fuzz lint docs dist bench paper test-gpu clean

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[all,test]'
	touch $@

$(VENV)/lint-ready: $(VENV)/ready
	$(PIP) --editable '.[lint,bench]'
	touch $@

$(VENV)/docs-ready: $(VENV)/ready
	$(PIP) --editable '.[docs]'
	touch $@

demo: $(VENV)/ready  ## match the shipped pair, write demo.png and demo.html
	$(RUN) -m gromap.demo

test: $(VENV)/ready  ## the whole test suite, doctests included, in two processes of one thread each
	OMP_NUM_THREADS=1 $(RUN) -m pytest -n 2 --dist loadfile

fuzz: $(VENV)/ready  ## random and damaged inputs for MINUTES, 30 unless given
	OMP_NUM_THREADS=1 $(RUN) -m tests.fuzz --minutes $(or $(MINUTES),30)

lint: $(VENV)/lint-ready  ## ruff and pyright
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/pyright

docs: $(VENV)/docs-ready  ## the site, its gallery included, in build/docs; warnings are errors
	GROMAP_CACHE=$(abspath build/cache) $(RUN) -m sphinx -W --keep-going -d build/doctrees docs build/docs

dist: $(VENV)/ready  ## wheel and sdist in build/dist, checked, and the demo run from the wheel alone
	$(PIP) --editable '.[dist]'
	rm -rf build/dist
	$(RUN) -m build --outdir build/dist
	$(RUN) -m twine check --strict build/dist/*
	$(RUN) -m tests.dist build/dist

bench: $(VENV)/ready  ## speed and quality on this machine, beside the peers that are installed
	$(RUN) benchmarks/step.py
	$(RUN) benchmarks/match.py
	$(RUN) benchmarks/peers.py
	$(RUN) benchmarks/landscape.py

paper: $(VENV)/ready  ## the paper's experiments on solvers, as build/paper/report.html; continues where it stopped
	$(RUN) -m gromap.cli bench paper --out build/paper

test-gpu:  ## the tests marked gpu, with whatever torch the machine has; nothing is installed
	PYTHONPATH=src $(PYTHON) -m pytest -m gpu tests

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis test-artefacts demo.png demo.html scaling.png
	rm -rf build/docs build/doctrees build/cache docs/auto_gallery docs/reference/api docs/sg_execution_times.rst
