# The project's commands; `make` alone lists them. `make test ARGS="-k preview"` passes arguments on.

.DEFAULT_GOAL := help
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE VIRTUAL_ENV
export PIP_DISABLE_PIP_VERSION_CHECK = 1

BIN = .venv/bin
INSTALL = $(BIN)/python -m pip install
LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--custom-compile-command "make lock"

help: ## list the commands
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

install: .venv/dev.stamp ## create .venv with everything that building and testing need

demo: .venv/run.stamp ## bill three months of twenty subscribers, then keep serving the API
	@$(BIN)/fatura demo $(ARGS)

up: .venv/run.stamp ## start the database, the API and a worker
	@$(BIN)/fatura up $(ARGS)

test: .venv/dev.stamp ## run the tests on a real PostgreSQL that comes with the packages; check and test-faults run the others
	@$(BIN)/pytest -n auto --dist worksteal --ignore=tests/tidy $(ARGS)

test-faults: .venv/dev.stamp ## run a short version of each fault run, and the other long tests
	@$(BIN)/pytest -n auto --dist worksteal -m "faults and not last and not alone"
	@$(BIN)/pytest -m last tests/faults

faults: .venv/dev.stamp ## run the fault programme for half an hour; SEED=2 changes the faults, ARGS="crashes --short" selects one run
	@FATURA_BREAK=$(BREAK) $(BIN)/python -m tests.faults --seed $(or $(SEED),1) $(ARGS)

check: .venv/dev.stamp ## lint, formatting, types, import contracts, house rules, citations
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/basedpyright
	$(BIN)/lint-imports --no-cache
	$(BIN)/pytest -q tests/tidy
	$(BIN)/python -m tools.spec

format: .venv/dev.stamp ## format the code and apply automatic fixes
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

contract: .venv/dev.stamp ## check the OpenAPI document with Schemathesis, linters and client generators, and Pix codes with another reader
	@$(if $(ARGS),,$(BIN)/pytest -q -m contract -n 2 tests/api)
	@$(BIN)/python -m tools.contract $(ARGS)

contracts: .venv/dev.stamp ## test the adapters, also against providers' documents in the folder CONTRACTS, which are not part of Fatura
	@FATURA_CONTRACTS="$(abspath $(CONTRACTS))" $(BIN)/python -m tools.gateways $(ARGS)

live-gateways: .venv/dev.stamp ## check the adapters at the sandboxes of providers whose keys are in FATURA_LIVE_<PROVIDER>
	@$(BIN)/pytest -q -rs -m live tests/live $(ARGS)

browser: .venv/dev.stamp ## read the pay page in a Chromium or Chrome of this machine
	@$(BIN)/pytest -q -n 2 -m browser tests/browser $(ARGS)

contrib: .venv/dev.stamp ## check the files of contrib with the linters of their formats
	@$(BIN)/python -m tools.contrib

spec: .venv/dev.stamp ## list clauses that no test cites; ALL=1 also lists clauses that are not built yet
	@$(BIN)/python -m tools.spec $(if $(ALL),--all)

docs: .venv/dev.stamp ## write the generated pages of docs again
	@$(BIN)/python -m tools.generated

lock: .venv/dev.stamp ## pin the dependencies again; ARGS=--upgrade selects the newest versions
	$(LOCK) $(ARGS) pyproject.toml --group build -o requirements.lock
	$(LOCK) $(ARGS) pyproject.toml --group dev -c requirements.lock -o requirements-dev.lock
	$(LOCK) $(ARGS) tools/contract/requirements.in -o tools/contract/requirements.lock
	$(LOCK) $(ARGS) tools/contrib/requirements.in -o tools/contrib/requirements.lock

bench: .venv/dev.stamp ## measure the performance as ratios
	@$(BIN)/python -m bench $(ARGS)

bench-peers: .venv/dev.stamp ## install two other billing programs under bench/peers and compare with them
	@$(BIN)/python -m bench peers $(ARGS)

.PHONY: help install demo up test test-faults faults check contract contracts live-gateways browser contrib format spec docs lock bench bench-peers

.venv/run.stamp: requirements.lock pyproject.toml tools/venv.sh
	@sh tools/venv.sh
	$(INSTALL) --require-hashes --only-binary :all: -r requirements.lock
	$(INSTALL) --quiet --no-deps --no-build-isolation --no-index --editable .
	@touch $@

.venv/dev.stamp: requirements-dev.lock .venv/run.stamp
	$(INSTALL) --require-hashes --only-binary :all: -r requirements-dev.lock
	@touch $@
