# Everything that this project needs from a machine: make, git, Python 3.11 or newer with its venv module.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
BENCH_VENV := .venv-bench
# A child of these tests starts in half the time when it, or a test before it, finds the modules compiled.
unexport PYTHONDONTWRITEBYTECODE
# Tests that measure a pace on a real stack have the machine for themselves: a neighbour on the same two cores would bend it.
# The others run together, file by file in their own order: by the number of its tests, the simulator would come last, and
# alone. Many of them wait for a stack or a browser, so three keep two cores busy; beside PostgreSQL's own processes two do.
ALONE := tests/scenarios/test_kill9_cluster.py tests/scenarios/test_two_clusters.py
TOGETHER := --dist loadfile --no-loadscope-reorder $(addprefix --ignore=,$(ALONE))
# What never meets the configured database, or brings its own, or says nothing that the engine's and the pages' tests do not,
# runs once, on the SQLite turn: adapters, sandbox, manifests, stores, the simulator, the demonstration, commands, words.
ONCE := tests/providers tests/sandbox tests/manifests tests/storage tests/simulation tests/test_demo.py \
	tests/templating tests/test_cells.py tests/chaos tests/commands tests/test_admin.py tests/test_admin_lists.py tests/test_examples.py \
	tests/test_settings.py tests/test_stack.py tests/test_commands_stack.py tests/test_cluster.py tests/test_installation.py \
	tests/test_layering.py tests/test_docs.py tests/test_wording.py tests/test_sentences.py tests/test_filenames.py \
	tests/test_finishing.py tests/test_zipwriter.py tests/test_handbook.py \
	tests/web/test_browser.py tests/web/test_overlays.py tests/web/test_every_page.py tests/web/test_tour.py tests/web/test_tour_of_intake.py \
	tests/web/test_tour_of_home.py tests/web/test_large_archives.py tests/scenarios/test_end_to_end.py tests/scenarios/test_every_provider.py \
	tests/scenarios/test_workplace_killed.py
# So do the stories in virtual time that tell the engine's rules, which no database changes, at many small statements each;
# those about locks, rows written together, many batches and repair are told on both.
RULES := tests/test_loadtest.py $(patsubst %,tests/scenarios/test_%.py,account_health account_trouble accounts_share_threads \
	adopting called_back cases_of_others collecting docraptor_over_http doubt_beside_a_failure drafts fair_turns fetching_early \
	late_beside_another late_watch learned_deadline learned_polling one_fault_stays_one pdfmonkey poison_documents polling_ends refusals \
	regenerating repair_on_a_stack repair_verbs samples slots_of_downloads slots_of_reads spend_cap store_troubles straight_road \
	submissions_fail too_many_at_once webhooks_change_nothing woken_by_webhooks)
# And pages whose rows others ask for as well, and rules that ask no database at all.
PURE := $(patsubst %,tests/web/test_%.py,cases_of_intake document_verbs health middleware previews refilling rights_walk) \
	$(patsubst %,tests/engine/test_%.py,capacity causes departures effects keys transitions verbs breadth breaker collecting_over_http collection drafting expectations holdings keeping outage \
	polling polls retries retry_waits sentinels steps threads virtual_time)
TOGETHER_ON_POSTGRES := -n 2 $(TOGETHER) $(addprefix --ignore=,$(ONCE) $(RULES) $(PURE))
# Races and deaths are told on both databases; what happens between a stack and its provider or server, on one.
# The pages are told through Django's client on PostgreSQL, and in the browser on SQLite.
# So are decisions of the engine that one process makes and rows tell: on PostgreSQL, which is stricter about types.
DECISIONS := tests/engine/corrections tests/engine/drafts tests/mailing tests/test_api.py tests/test_webhook_server.py \
	$(patsubst %,tests/engine/intake/test_%.py,leads planning private_addresses sources writing) \
	$(patsubst %,tests/engine/test_%.py,account_changes bulk_actions callbacks carrying carrying_asking completing credit durations \
	elsewhere estimates exporting health inbox inbox_door inbox_matching inbox_of_another_vendor inbox_wallet links outliers received \
	reconcile retry_budget running stopping storerepair sweep templates verbs_applied webhook_health webhook_setup work)
PAGES := $(filter-out $(ONCE) $(PURE),$(wildcard tests/web/test_*.py))
TOGETHER_ON_SQLITE := -n 3 $(TOGETHER) $(addprefix --ignore=tests/scenarios/,test_few_connections.py test_webhooks_end_to_end.py) \
	$(addprefix --ignore=,$(PAGES) $(DECISIONS))

.DEFAULT_GOAL := help
.PHONY: help install demo up test test-sqlite test-postgres simulate chaos chromium lint types check lock clean \
	bench bench-causes bench-claiming bench-intake bench-pages bench-scale bench-statements bench-pacing bench-pacing-clusters bench-requests bench-webhooks bench-zip loadtest

help:
	@echo "make demo     install, render the twelve documents of examples/ on the sandbox, print the result, stop"
	@echo "make up       the same stack, kept running, with its pages"
	@echo "make test     the whole suite, on SQLite and on PostgreSQL"
	@echo "make simulate SEEDS=20000   that many simulated runs of the engine under every fault; SEED=7 replays one"
	@echo "make chaos    500 documents on the real stack and a hostile sandbox, kill -9 every few seconds; both databases"
	@echo "make lint     ruff                    make types    mypy"
	@echo "make check    lint, types, Django's own checks, migrations"
	@echo "make bench    documents a second against three baselines; more tables: benchmarks/README.md"
	@echo "make loadtest how many documents at once are worth it, on a stack of its own"
	@echo "make shots    a picture of every page, light and dark, wide and narrow, into var/shots"
	@echo "make install  .venv with everything   make clean    remove the demonstration's data and all caches"

install: $(INSTALLED)

$(INSTALLED): requirements-dev.txt requirements-engine.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) -V 2>&1). Say PYTHON=python3.12 or so."; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
		{ echo "Python's venv module is missing. On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: -r requirements-engine.txt || \
		{ echo; echo "There is no wheel of the rendering engine for this machine (there are for Linux x86-64 with glibc,"; \
		  echo "macOS 15 on Apple silicon, and Windows). Without it the sandbox cannot render, so 'make demo' will fail;"; \
		  echo "everything else works: set RELAYPDF_API_KEY and use a RelayPDF account."; echo; }
	@touch $@

demo: $(INSTALLED)
	@$(BIN)/python -m relaypdf_site.demo demo

up: $(INSTALLED)
	@$(BIN)/python -m relaypdf_site.demo up

test: test-sqlite test-postgres

test-sqlite: $(INSTALLED) chromium
	env -u DATABASE_URL $(BIN)/python -m pytest --durations 25 $(TOGETHER_ON_SQLITE)
	env -u DATABASE_URL $(BIN)/python -m pytest --durations 10 $(ALONE)

test-postgres: $(INSTALLED) chromium
	$(BIN)/python -m tests.postgres -- pytest --durations 25 $(TOGETHER_ON_POSTGRES)
	$(BIN)/python -m tests.postgres -- pytest --durations 10 $(ALONE)

# SEEDS runs from FIRST on, in PROCESSES at once; or SEED=7: that one again, with all that happened in it.
SEEDS := 1000
FIRST := 0
PROCESSES := 2
simulate: $(INSTALLED)
	@$(BIN)/python -m tests.simulation \
		$(if $(SEED),--seed $(SEED),--seeds $(SEEDS) --first $(FIRST) --processes $(PROCESSES))

# Some five minutes for each database; exit code 1 when a promise was broken. SEED=7 repeats a run's documents, faults and
# blows; CHAOS="--kill-sandbox --store s3" does more.
DOCUMENTS := 500
chaos: $(INSTALLED)
	env -u DATABASE_URL $(BIN)/python -m tests.chaos --database sqlite --documents $(DOCUMENTS) $(SEED:%=--seed %) $(CHAOS)
	env -u DATABASE_URL $(BIN)/python -m tests.chaos --database postgres --documents $(DOCUMENTS) $(SEED:%=--seed %) $(CHAOS)

# The pages are tested in a real browser, never skipped.
chromium:
	@command -v chromium >/dev/null || \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; \
		else echo "The page tests need Chromium. Run this once: sudo apt-get install -y chromium"; exit 1; fi

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

check: lint types
	DATA_DIR=var/check $(BIN)/python manage.py makemigrations --check --dry-run
	DATA_DIR=var/check ALLOWED_HOSTS=batches.example.com BEHIND_HTTPS_PROXY=1 SECURE_HSTS_SECONDS=31536000 \
		$(BIN)/python manage.py check --deploy --fail-level WARNING

# About four minutes, most of them for making a million jobs.
bench-pages: $(INSTALLED)
	$(BIN)/python -m tests.postgres -- python -m benchmarks.pages $(BENCH)

bench-claiming: $(INSTALLED)
	$(BIN)/python -m tests.postgres -- python -m benchmarks.claiming

# Needs uv. Run it after a change of the dependencies in pyproject.toml.
lock:
	uv pip compile pyproject.toml --universal --generate-hashes -q --no-header -o requirements.txt
	uv pip compile pyproject.toml --extra oidc --universal --generate-hashes -q --no-header -o requirements-oidc.txt
	uv pip compile pyproject.toml --group dev --universal --generate-hashes -q --no-header -o requirements-dev.txt
	uv pip compile --group bench --universal --generate-hashes -q --no-header -o requirements-bench.txt

# Measurements; never part of a test run. BENCH passes arguments on, as in BENCH="--rounds 1 --documents 200".
bench: $(INSTALLED) $(BENCH_VENV)/.installed
	AIOHTTP_PYTHON=$(BENCH_VENV)/bin/python $(BIN)/python -m benchmarks throughput $(BENCH)

$(BENCH_VENV)/.installed: requirements-bench.txt
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-bench.txt
	@touch $@

bench-scale: $(INSTALLED)
	$(BIN)/python -m benchmarks scale $(BENCH)

bench-causes: $(INSTALLED)
	$(BIN)/python -m benchmarks causes $(BENCH)

bench-intake: $(INSTALLED)
	$(BIN)/python -m benchmarks intake $(BENCH)

bench-zip: $(INSTALLED)
	$(BIN)/python -m benchmarks zip $(BENCH)

bench-statements: $(INSTALLED)
	$(BIN)/python -m benchmarks statements $(BENCH)

bench-pacing: $(INSTALLED)
	$(BIN)/python -m benchmarks pacing $(BENCH)

bench-pacing-clusters: $(INSTALLED)
	$(BIN)/python -m benchmarks pacing --database postgres --clusters 2 $(BENCH)

bench-requests: $(INSTALLED)
	$(BIN)/python -m benchmarks requests $(BENCH)

bench-webhooks: $(INSTALLED)
	$(BIN)/python -m benchmarks requests --webhooks $(BENCH)

# A picture of every page, light and dark, wide and narrow, with data and without, into var/shots; and what is wrong on them.
.PHONY: shots
shots: $(INSTALLED) chromium
	ONLY=$(ONLY) $(BIN)/python -m pytest -q -s tests/shots/shoot.py

loadtest: $(INSTALLED)
	@$(BIN)/python -m benchmarks.loadtest $(LOADTEST)

clean:
	rm -rf var/demo var/check .pytest_cache .mypy_cache .ruff_cache
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +
