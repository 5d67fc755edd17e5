# From a fresh clone to a trained network: make quickstart. All is installed into .venv, nothing elsewhere.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip install --quiet --disable-pip-version-check --editable
LONGEST := notebooks/transfer_learning.ipynb
NOTEBOOKS := $(LONGEST) $(filter-out $(LONGEST),$(wildcard notebooks/*.ipynb))
BENCHMARKS := $(filter-out benchmarks/reporting.py,$(wildcard benchmarks/*.py))

# Hundreds of processes start in tests and notebooks: what the first of them compiles is there for the others.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help quickstart pretrained test test-all test-slow test-cluster test-benchmarks test-matrix test-matrix-quick test-peers lint notebooks docs benchmarks clean

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-18s %s\n", $$1, $$2}' Makefile

quickstart: $(VENV)/installed-plot  ## train a network on the packaged images, on this machine
	$(RUN) -m sparkdl.quickstart

pretrained: $(VENV)/installed-plot  ## train a ResNet-18 on CIFAR-10 for others to start from; 20 to 30 minutes
	$(RUN) notebooks/pretrained.py

test: $(VENV)/installed-test  ## run the tests that take a few minutes
	$(RUN) -m pytest --numprocesses 3 -m "not slow"

test-all: test test-slow test-cluster notebooks test-benchmarks test-matrix-quick test-peers  ## run every test and notebook, and some tests with the oldest pyspark

test-matrix-quick:  ## run some tests of Spark with the oldest pyspark
	.ci/test_matrix --quick 3.5

test-slow: $(VENV)/spark.jsa  ## run what test leaves out: faults, mutations, real processes
	$(RUN) -m pytest --numprocesses 3 -m slow --ignore tests/cluster --ignore tests/benchmarks

test-cluster: $(VENV)/spark.jsa  ## run the tests on several hosts, made of network namespaces
	$(RUN) -m pytest --numprocesses 3 tests/cluster

test-benchmarks: $(VENV)/spark.jsa  ## run the tests of benchmarks
	$(RUN) -m pytest --numprocesses 3 -m slow tests/benchmarks

test-peers: $(VENV)/installed-benchmarks $(VENV)/installed-test  ## run the tests that compare with PyTorch, TensorFlow and transformers
	$(RUN) -m pytest --numprocesses 3 -m peers

test-matrix:  ## run the tests of Spark with every pyspark that is supported
	.ci/test_matrix

lint: $(VENV)/installed-test  ## check style and types
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy sparkdl

notebooks: $(VENV)/installed-notebooks  ## run every notebook, two at a time, into build/notebooks
	@printf '%s\n' $(NOTEBOOKS) | \
		xargs -n 1 -P 2 $(RUN) -m nbconvert --to notebook --execute --output-dir build/notebooks

docs: $(VENV)/installed-docs  ## build the documentation, into build/site
	NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(RUN) -m mkdocs build --quiet --strict

benchmarks: $(VENV)/installed-benchmarks  ## run every benchmark in its quick form
	@for benchmark in $(BENCHMARKS); do echo $$benchmark; $(RUN) $$benchmark --quick || exit 1; done

clean:  ## remove all that these targets made
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for each extra of setup.cfg. A Java comes with the first of them if the machine has none that Spark runs on.
$(VENV)/installed-%: $(VENV)/created setup.cfg setup.py
	@echo "Installing sparkdl[$*] into $(VENV); the first time takes a minute or two."
	@$(PIP) ".[$*]"
	@$(RUN) -c "import sys; from sparkdl.spark.session import find_java; sys.exit(find_java() is None)" || { \
		echo "Found no Java that Spark runs on: installing one into $(VENV)."; \
		$(PIP) ".[jre]"; \
	}
	@touch $@

# Half of a session's start, for tests that start many.
$(VENV)/spark.jsa: $(VENV)/installed-test
	@$(RUN) tests/share_classes.py $@

$(VENV)/created:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || { \
		echo "sparkdl needs Python 3.11 or newer, received $$($(PYTHON) --version 2>&1);" \
			"name another, as in: make PYTHON=python3.12 quickstart" >&2; \
		exit 1; \
	}
	@$(PYTHON) -c "import ensurepip, venv" || { \
		echo "sparkdl needs a Python with venv, received $(PYTHON) without it;" \
			"install it (on Debian and Ubuntu the package python3-venv) or name another Python by PYTHON=" >&2; \
		exit 1; \
	}
	@$(PYTHON) -m venv $(VENV)
	@touch $@
