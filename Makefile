# isrwatch. "make" alone lists what there is. Needs make, Python 3.11 or newer and a network; everything else
# (Spark, Java, jars) comes from packages.

PYTHON ?= python3
VENV ?= .venv
FOR ?=
RUNS ?= 50
WORKERS ?= 2
SAMPLE ?= 300
CASES ?= 1000000
SEED ?=
SCENARIO ?=
FAULTS ?=
DIST ?= dist
PACKAGER ?=

BIN := $(VENV)/bin
RUN_READY := $(VENV)/.ready-run
DEV_READY := $(VENV)/.ready-dev
PIP := $(BIN)/python -m pip --disable-pip-version-check
COMPILE := $(BIN)/uv pip compile pyproject.toml --extra all --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-header --quiet
# A process of the tests that is aborted ends the run: with another one in its place xdist may wait for ever.
PYTEST := pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0
# What is compiled stays: the tests start hundreds of programs.
unexport PYTHONDONTWRITEBYTECODE
# On a terminal pip shows its own progress. Elsewhere what is large, and what takes long after it has arrived; a pipe has
# no exit code of its own, so a file says whether pip succeeded.
SHOWN := | sed -unE -e 's|^ *(Downloading\|Using cached) ([^ ]*/)?([^ /]+) (\([0-9]{2,}(\.[0-9])? MB\).*)|  \3 \4|p' \
	-e 's|^ *(Building wheel for [^ ]+).*: started|  \1|p' -e 's|^Installing collected packages.*|  Installing what has arrived|p'
INSTALLED := $(VENV)/.installed
SAY := @printf '%s\n'
ifeq ($(shell [ -t 2 ] && [ -z "$$NO_COLOR" ] && echo terminal),terminal)
SAY := @printf '\033[1m%s\033[0m\n'
endif
ifeq ($(shell [ -t 2 ] && echo terminal),terminal)
SHOWN :=
endif

.DEFAULT_GOAL := help
.PHONY: help env env-dev jars tools demo quick test compiled test-long times flaky coverage check format generated docs bench chaos chaos-kafka drill judge fuzz mutants pictures package wheels images chart release lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  make demo FOR=60s ends by itself; make PYTHON=python3.12 env chooses the Python; VENV=DIR its folder"

env: $(RUN_READY) ## create .venv with everything that isrwatch needs to run

env-dev: $(DEV_READY) ## the same with the tools for development, such as pytest

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("isrwatch needs Python 3.11 or newer, $(PYTHON) is " + sys.version.split()[0] + "; try: make PYTHON=python3.12")'
	$(SAY) "Creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "cannot create $(VENV): on Debian and Ubuntu install python3-venv" >&2; exit 1; }

# The files name all that is needed, so nothing is resolved again: pip would look at versions newer than the named
# ones for extras such as coverage[toml], and stop because they have no hash.
$(RUN_READY): requirements/run.txt pyproject.toml | $(BIN)/python
	$(SAY) "Installing isrwatch and what it needs, checked by hash (Spark is 430 MB: a minute or more)"
	@rm -f $(INSTALLED)
	@{ $(PIP) install --no-deps --require-hashes -r requirements/run.txt && touch $(INSTALLED); } $(SHOWN)
	@test -e $(INSTALLED)
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@$(PIP) check --quiet
	@touch $@

$(DEV_READY): requirements/dev.txt $(RUN_READY)
	$(SAY) "Installing the tools of development, checked by hash"
	@rm -f $(INSTALLED)
	@{ $(PIP) install --no-deps --require-hashes -r requirements/dev.txt && touch $(INSTALLED); } $(SHOWN)
	@test -e $(INSTALLED)
	@$(PIP) check --quiet
	@touch $@

jars: $(RUN_READY) ## fetch and verify the jars: Delta, the sandbox's Kafka, the JMX exporter
	$(SAY) "Fetching and verifying jars"
	@$(BIN)/isrwatch jars fetch

demo: $(RUN_READY) ## watch a simulated cluster live: FOR=60s ends by itself, SCENARIO=NAME chooses what breaks
	@$(BIN)/isrwatch demo $(if $(FOR),--for $(FOR)) $(if $(SCENARIO),--scenario $(SCENARIO))

tools: ## install Prometheus, Alertmanager and faketime (Debian packages) where the tests find none
	@./.ci/tools

check: $(DEV_READY) ## format, lint, types, import contracts, spelling, generated files
	$(SAY) "Checking format, lint, types, imports, spelling"
	@$(BIN)/ruff format --check --quiet . || { echo "run: make format" >&2; exit 1; }
	@$(BIN)/ruff check --quiet .
	@# The types take as long as all the rest, which runs at the same time.
	@$(BIN)/mypy & types=$$!; \
	$(BIN)/lint-imports --no-cache && $(BIN)/codespell && $(BIN)/validate-pyproject pyproject.toml && \
		$(BIN)/isrwatch dashboards render --check && $(BIN)/python -m deploy.images render --check && \
		$(BIN)/python -m docs.builder references --check; rest=$$?; \
	wait $$types && exit $$rest

compiled: $(DEV_READY)
	@mkdir -p build
	@$(BIN)/python -m pytest --collect-only -q >build/collected.log || { tail -n 30 build/collected.log; exit 1; }

format: $(DEV_READY) ## write what the formatter and the safe fixes of the linter want
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/ruff format .

pictures: $(DEV_READY) ## draw every board and page, healthy, in trouble and blind, into dist/pictures: needs npm, Chromium; ARGS=--board=fleet
	$(SAY) "Installing Grafana's libraries (380 packages, 430 MB) and bundling the page"
	@cd dashboards/pictures && npm ci --silent && node build.mjs
	@$(BIN)/python -m tests.pictures $(ARGS)
	@$(BIN)/python -m tests.pictures.pages $(ARGS)

generated: $(RUN_READY) ## render the boards, the alerts and docs/reference again
	@$(BIN)/isrwatch dashboards render
	@$(BIN)/python -m deploy.images render
	@$(BIN)/python -m docs.builder references

quick: $(DEV_READY) jars ## check, and at the same time the tests that start no service and do not wait: a minute and a half
	@$(BIN)/python -m tests.quick $(ARGS)

test: $(DEV_READY) ## check, then every test against real Spark, Kafka and Prometheus; no skips, WORKERS=2 at once
	@# The types need one core and most of the time; what is fetched and compiled is ready when they are.
	@$(MAKE) --no-print-directory --jobs=4 check jars tools compiled
	$(SAY) "Running every test"
	@ISRWATCH_NO_SKIPS=1 $(BIN)/python -m $(PYTEST) --random-order $(ARGS)

test-long: $(DEV_READY) jars tools ## what takes too long for that, in parts of an hour: ARGS="--part judge --resume --write"
	@$(BIN)/python -m tests.long $(ARGS)

times: $(DEV_READY) jars tools ## make test, and its seconds into tests/times.toml; ARGS=FILE runs, and writes, only these
	@$(if $(ARGS),ISRWATCH_NO_SKIPS=1 $(BIN)/python -m pytest -q $(ARGS),$(MAKE) --no-print-directory test)
	@$(BIN)/python -m tests.times $(ARGS)

flaky: $(DEV_READY) jars tools ## what starts a program or waits, ten times next to two busy processes: ARGS="--resume --write"
	@$(BIN)/python -m tests.long --part flaky $(ARGS)

coverage: $(DEV_READY) jars tools ## trace the tests that cover the product: at least 90 %, and how much of each room
	@ISRWATCH_NO_SKIPS=1 $(BIN)/python -m $(PYTEST) -p tests.plugins.tracing --traced $(ARGS)

docs: $(DEV_READY) ## build the documentation in build/docs; a wrong link, anchor or page fails
	@$(BIN)/python -m docs.builder

bench: $(DEV_READY) jars ## measure on this machine, and print what was measured
	@for bench in tests/benchmarks/[a-z]*.py; do \
		echo "$$bench"; $(BIN)/python -m tests.benchmarks.$$(basename $$bench .py) $(ARGS) || exit 1; done

chaos: $(DEV_READY) jars ## random runs of the real job under random harm: RUNS=50, SEED=N; ARGS=--resume continues where it stopped
	@$(BIN)/python -m tests.chaos --runs $(RUNS) $(if $(SEED),--seed $(SEED)) $(ARGS)

chaos-kafka: $(DEV_READY) jars ## random faults of a real Kafka, and whether the tables have what its log has: FAULTS=30, SEED=N
	@$(BIN)/python -m tests.chaos_kafka --faults $(or $(FAULTS),30) $(if $(SEED),--seed $(SEED)) $(ARGS)

drill: $(DEV_READY) jars ## ten faults of a real Kafka, and whether each is reported as what it was: FAULTS=A,B
	@$(BIN)/python -m tests.drill $(if $(FAULTS),--faults $(FAULTS)) $(ARGS)

judge: $(DEV_READY) ## random faults that no rule was tuned to: what is reported of them against the model: PLAYS=2000, ARGS=--polled
	@$(BIN)/python -m tests.judge $(if $(PLAYS),--plays $(PLAYS)) --workers $(WORKERS) $(if $(SEED),--seed $(SEED)) $(ARGS)

fuzz: $(DEV_READY) ## damaged frames, records, observations, responses, pages and configurations: CASES=1000000, SEED=N
	@$(BIN)/python -m tests.fuzz --cases $(CASES) $(if $(SEED),--seed $(SEED)) $(ARGS)

mutants: $(DEV_READY) ## put small faults into the rules, to see that a test fails of each: SAMPLE=300, SEED=N
	@$(BIN)/python -m tests.mutants --sample $(SAMPLE) --workers $(WORKERS) $(if $(SEED),--seed $(SEED)) $(ARGS)

package: $(if $(PACKAGER),,$(RUN_READY)) ## build dist/isrwatch.zip, the code for spark-submit --py-files
	@rm -f $(DIST)/isrwatch-*.whl $(DIST)/isrwatch.zip
	@$(or $(PACKAGER),$(BIN)/python) -m hatchling build --target wheel --directory $(DIST)
	@cp $(DIST)/isrwatch-*.whl $(DIST)/isrwatch.zip

wheels: $(if $(PACKAGER),,$(RUN_READY)) ## build the wheels and the source distribution of the commit into dist
	@$(or $(PACKAGER),$(BIN)/python) -m deploy.release packages --directory $(DIST)

images: $(if $(PACKAGER),,$(RUN_READY)) ## build both images of the commit into dist without a registry, as root: needs mmdebstrap and buildah
	@./.ci/tools mmdebstrap buildah
	@$(or $(PACKAGER),$(BIN)/python) -m deploy.images build --directory $(DIST)

release: $(if $(PACKAGER),,$(RUN_READY)) ## build a release in dist: packages, chart, images, lists of materials (CycloneDX), SHA256SUMS
	@rm -rf $(DIST)
	@$(MAKE) --no-print-directory wheels chart images DIST=$(DIST)
	@$(or $(PACKAGER),$(BIN)/python) -m deploy.release checksums --directory $(DIST)
	@$(or $(PACKAGER),$(BIN)/python) -m tests.long --old

chart: $(if $(PACKAGER),,$(RUN_READY)) ## build dist/isrwatch-VERSION.tgz, the Helm chart of Kubernetes
	@$(or $(PACKAGER),$(BIN)/python) -m deploy.chart_files $(DIST)

lock: $(DEV_READY) ## resolve the Python packages again (with uv, installed for this only)
	@$(PIP) install --quiet uv==0.13.8
	$(SAY) "Resolving requirements/run.txt and requirements/dev.txt"
	@$(COMPILE) --group build --output-file requirements/run.txt $(ARGS)
	@$(COMPILE) --group dev --constraint requirements/run.txt --output-file requirements/dev.txt $(ARGS)

clean: ## delete .venv, caches and builds (not .isrwatch: that is data)
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
