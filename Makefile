# Every target sets up .venv by itself. `make help` lists them.

PYTHON ?= python3
EXTRAS ?= dev
BIN := .venv/bin
WORKERS ?= 2
SHARE := .venv/share/jupyter
JUPYTERLAB := $(CURDIR)/autograde/faces/jupyterlab

.DEFAULT_GOAL := help
.PHONY: help demo demo-all test test-full soak lint docs screenshots lab build prove bench doctor lock clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

.venv/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "convladder needs Python 3.11 or newer; set PYTHON=python3.x"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' || { echo "the Debian package python3-venv is missing: apt install python3-venv"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	# An editable install leaves out what JupyterLab looks for in its own places (data-files in pyproject.toml).
	mkdir -p $(SHARE)/labextensions $(SHARE)/lab/settings/overrides.d
	ln -sfn $(JUPYTERLAB)/labextension $(SHARE)/labextensions/convladder
	ln -sfn $(JUPYTERLAB)/overrides.d/convladder.json $(SHARE)/lab/settings/overrides.d/convladder.json
	touch $@

demo: .venv/.ready  ## build lab 01, grade its sample class, write build/demo/index.html
	$(BIN)/convladder demo

demo-all: .venv/.ready  ## the same for every graded lab: build/demo-all/LAB/index.html
	$(BIN)/convladder demo --all --out build/demo-all

test: lint  ## lint, types and the fast tests
	$(BIN)/python -m pytest -n $(WORKERS) -m "not full"
	$(BIN)/convladder build --check

test-full: lint  ## everything, the slow tests and the proofs of the labs too
	$(BIN)/python -m pytest -n $(WORKERS)
	$(BIN)/convladder build --check
	$(BIN)/convladder prove

COUNT ?= 500
soak: .venv/.ready  ## grade 500 generated submissions while graders and their processes are killed at random
	$(BIN)/python tests/autograde/soak.py --count $(COUNT) --workers $(WORKERS)

lint: .venv/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/.ready  ## the pages in docs/ as a site, build/docs/index.html; no network
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs
	@echo build/docs/index.html

lab: .venv/.ready  ## open the labs in JupyterLab
	$(BIN)/jupyter lab --notebook-dir=labs labs/syllabus.md

screenshots: .venv/.ready  ## what the browser tests see, for the documentation: docs/images
	CONVLADDER_SCREENSHOTS=docs/images $(BIN)/python -m pytest tests/autograde/test_jupyterlab.py tests/autograde/test_class_page.py

build: .venv/.ready  ## make labs/ from solutions/ and kernels/ladder/, docs/mistakes.md and docs/answers/
	$(BIN)/convladder build

prove: .venv/.ready  ## the four proofs of every lab
	$(BIN)/convladder prove

bench: .venv/.ready  ## rewrite the README's results and the rungs' figures from the records of `convladder bench SUITE --keep`
	$(BIN)/convladder bench --readme README.md

doctor: .venv/.ready  ## what this machine can do, and what to install for more
	$(BIN)/convladder doctor

lock: .venv/.ready  ## write constraints.txt anew from pyproject.toml
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --universal --python-version 3.11 --extra dev --extra cluster pyproject.toml --no-header --no-annotate --no-emit-index-url --upgrade -o constraints.txt

clean:  ## remove everything that was made
	rm -rf .venv build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
