# Every command sets up what it needs: uv (found, or put into .tools), then the locked environment in .venv.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTHON ?= python3
UV := $(shell command -v uv 2>/dev/null || echo .tools/bin/uv)
RUN := $(UV) run --locked
# The system's certificates, as pip and git use them: behind a proxy with its own authority uv knows no other.
export UV_SYSTEM_CERTS ?= 1

ifneq ($(filter command environment,$(origin PYTHON)),)
# Whoever names a Python means it for the environment too.
export UV_PYTHON := $(shell $(PYTHON) -c 'import sys; print(sys.executable)' 2>/dev/null)
endif
# The environment is this folder's own, whatever else is active.
unexport UV_PROJECT_ENVIRONMENT VIRTUAL_ENV
# Told to keep no compiled modules, every process of the tests would compile them all again.
unexport PYTHONDONTWRITEBYTECODE

# Where two transactions meet, or the database's own clock, locks and disk decide: the rest is the same whichever database
# is behind it, and was just tested. All of it runs there too in `make test-full`.
POSTGRESQL := $(addprefix tests/service/,approvals/test_races.py approvals/test_quorum.py billing/test_dunning.py durability \
	rate_limit auth_store http/test_whose_headers.py months replicas server/test_rolling.py db/test_clock.py db/test_pool.py db/test_locks.py upgrades http/test_sdk_requests.py)

# Whatever must stay exact when each request goes to another process: races, revocation, idempotency, limits. That is on
# PostgreSQL too: `make test` does not run it there with one process as well.
REPLICAS := $(addprefix tests/service/,approvals/test_races.py approvals/test_pending_limit.py approvals/test_quorum.py \
	durability/test_revocation.py durability/test_two_gateways.py durability/test_approvals_by_two.py \
	logs/test_idempotency.py logs/test_month.py logs/test_many.py checks/test_idempotency.py agents/test_agent_limit.py \
	team/test_member_limit.py organizations/test_api_keys.py accounts/test_management_rate.py accounts/test_revoked_sessions.py \
	accounts/test_register.py freezes rules/test_decisions.py budgets policies/test_races.py policies/test_shadow.py rate_limit/test_rate_limit.py rate_limit/test_rate_headers.py rate_limit/test_rate_by_two.py)

# Of these, `make test` runs what depends on the order of requests in several processes. The rest, one process at a time, is
# tested on SQLite.
REPLICAS_FULL_ONLY := $(addprefix tests/service/,accounts/test_register.py budgets/test_approvals.py budgets/test_budgets.py \
	budgets/test_windows.py logs/test_many.py organizations/test_api_keys.py)
ALIKE := invalid_budget or counted_cannot_change or invalid_freeze or wrong_number_of_people or a_wrong_value_is_named \
	or a_missing_field_is_named or without_a_valid_amount or no_json_object_is_refused or entries_must_be_a_list

WORKERS ?= 4

.PHONY: help demo docs test test-fast reduced test-full test-pages test-oldest test-oldest-own test-coding-agents behaviours fuzz faults check lint format lock build sbom lint-deploy screenshots bench bench-scale bench-authzen bench-freeze bench-replay bench-transparency bench-pieces soak audit clean

help:            ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/ —/'

.tools/bin/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "toolgate needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11 …"; exit 1; }
	@echo "Installing uv into .tools …"
	@rm -rf .tools
	@$(PYTHON) -m venv .tools >/dev/null 2>&1 || { rm -rf .tools; echo "Python cannot create environments here; install it with: apt-get install python3-venv"; exit 1; }
	@.tools/bin/python -m pip --disable-pip-version-check install --quiet 'uv>=0.9' || { rm -rf .tools; exit 1; }

demo: $(UV)      ## the gateway, an agent and a person, end to end, in half a minute
	@echo "Setting up the environment in .venv; the first time, packages are downloaded …"
	@$(UV) sync --locked --no-dev --extra demo --inexact
	@.venv/bin/toolgate demo

# Plugins and examples import their frameworks where they are collected: for ten seconds, in every worker. Those that
# cannot be installed beside the others have an environment of their own.
PLUGINS := tests/integrations
TYPES := tests/typing
APART := UV_PROJECT_ENVIRONMENT=.venv-apart $(UV) run --locked --no-default-groups --group apart
BEHAVIOUR := tests/integrations/test_behaviour.py
PLUGINS_APART := $(BEHAVIOUR) tests/integrations/test_late_denials.py tests/integrations/test_page_examples.py $(wildcard $(addprefix tests/integrations/,crewai semantic_kernel strands))

# The types of all those frameworks take one core more than a minute: the other one is not left idle. Nor does anybody wait
# for the second environment, which is made meanwhile; if that fails, its own tests say why. The tests of the public types
# run after mypy and read its cache: without it they take half a minute.
test: lint docs  ## everything that protects users, on both databases, with reduced counts
	@$(APART) true >/dev/null 2>&1 & apart=$$!; { $(RUN) mypy && $(RUN) pytest -q -m "not slow" $(TYPES); } & types=$$!; \
	  $(MAKE) --no-print-directory reduced; ended=$$?; wait $$apart; wait $$types && exit $$ended

# Rules that run in the process of the tests: a gateway, a command or a browser takes longer to start than all of these.
FAST := tests/guard/_capture tests/guard/running tests/guard/testing/test_fake.py \
	$(filter-out $(addprefix tests/guard/,test_copying.py test_files.py test_lightness.py test_logging.py \
	  test_process_state.py test_spans.py),$(wildcard tests/guard/test_*.py)) \
	$(addprefix tests/service/,approvals/test_denials.py checks/test_decide.py contract/test_unchanged.py \
	  core/test_batching.py core/test_canonical_json.py core/test_settings.py core/test_strict_json.py \
	  grants/test_covers.py logs/test_search.py logs/test_spreadsheets.py organizations/test_ip_allowlist.py \
	  plans/test_plan_file.py slack/test_signature.py webhooks/test_secrets.py outbound/test_ssrf.py webhooks/test_urls.py)

test-fast: $(UV) ## rules without processes, for each change while working: about a minute
	@$(RUN) pytest -q -n 2 -m "not slow" $(FAST)

# Each worker of the tests with three replicas starts six gateways. With more than two workers, the processes wait for each
# other so long that locks time out.
reduced:
	@$(RUN) pytest -n $(WORKERS) --dist worksteal -m "not slow" tests --ignore=$(PLUGINS) --ignore=$(TYPES)
	@$(RUN) pytest -n 3 --dist worksteal -m "not slow" --behaviours=compare $(PLUGINS)
	@$(APART) pytest -n 2 --dist worksteal -m "not slow" --behaviours=compare $(PLUGINS_APART)
	@$(RUN) pytest -n $(WORKERS) --dist worksteal -m "not slow" --database=postgresql \
	  $(filter-out $(REPLICAS),$(POSTGRESQL)) $(addprefix --ignore=,$(REPLICAS))
	@$(RUN) pytest -n 2 --dist worksteal -m "not slow" --database=postgresql --replicas=3 -k "not ($(ALIKE))" $(addprefix --ignore=,$(REPLICAS_FULL_ONLY)) \
	  $(filter-out $(REPLICAS_FULL_ONLY),$(REPLICAS))

test-full: check docs ## the same with full counts
	@$(RUN) pytest -n $(WORKERS) --dist worksteal tests --ignore=$(PLUGINS)
	@$(RUN) pytest -n 2 --dist worksteal --behaviours=compare $(PLUGINS)
	@$(APART) pytest -n 2 --dist worksteal --behaviours=compare $(PLUGINS_APART)
	@$(RUN) pytest -n $(WORKERS) --dist worksteal --database=postgresql tests/service tests/e2e
	@$(RUN) pytest -n 2 --dist worksteal --database=postgresql --replicas=3 $(REPLICAS)
	@$(RUN) pytest -n 2 --dist worksteal --database=postgresql --replicas=3 --no-redis $(REPLICAS)

test-pages: $(UV) ## the examples of docs/frameworks, each in an environment with only what its page says to install
	@$(RUN) pytest -n 2 tests/integrations/test_page_environments.py

behaviours: $(UV) ## write the table framework × behaviour of docs/frameworks.md, by running all of it
	@$(RUN) pytest -q -n 2 --behaviours=write $(BEHAVIOUR)
	@$(APART) pytest -q -n 2 --behaviours=write $(BEHAVIOUR)

OLDEST := $(patsubst tests/integrations/oldest/%.txt,%,$(sort $(wildcard tests/integrations/oldest/*.txt)))

# Of each framework alone: beside its oldest version the others may not even be imported. What frameworks of that age
# warn of among themselves is no error here.
test-oldest: test-oldest-own ## the oldest versions of our own dependencies, then those of each framework in its own environment
	@for one in $(OLDEST); do echo "$$one"; \
	  case $$one in crewai|semantic_kernel|strands) apart="--no-default-groups --group apart";; *) apart="";; esac; \
	  $(RUN) $$apart --isolated --with-requirements tests/integrations/oldest/$$one.txt \
	    python -m pytest -q -n $(WORKERS) -m "not slow" -W default \
	      --framework $$one tests/integrations/test_behaviour.py || exit 1; \
	done

# The oldest declared version of each direct dependency of the SDK, the command line and the gateway, without the optional
# httpx2. Test tools are of any version. uv.lock is neither read nor changed.
OWN_OLDEST := .venv-oldest
OWN_EXTRAS := cli,policy,service,prove,postgres,redis,billing,otel,metrics,traces
# Schemathesis needs a newer rich, and Claude Code is installed with its SDK, which needs a newer pydantic and starlette. The
# MCP SDK is a framework, tested below.
OWN_IGNORED := $(addprefix --ignore=tests/,service/api/test_schemathesis.py service/access_requests/test_mcp_server.py $(addprefix guard/cli/hooks/,test_claude_code.py \
	test_example.py test_status.py test_claude_code_http.py))
# The PostgreSQL driver and dialect: checks that are held, races, the request path; and Redis, which counts for replicas.
OWN_POSTGRESQL := $(addprefix tests/service/,approvals/test_long_poll_http.py approvals/test_races.py approvals/test_quorum.py \
	checks/test_outcomes.py rate_limit auth_store db)
OWN_REPLICAS := $(addprefix tests/service/,rate_limit/test_rate_limit.py rate_limit/test_rate_by_two.py)
OWN_PYTEST = $(OWN_OLDEST)/bin/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow" -W default

test-oldest-own: $(UV) ## SDK, command line and gateway with the oldest versions of their own dependencies
	@$(UV) venv --quiet --clear $(OWN_OLDEST)
	@$(UV) pip install --quiet --python $(OWN_OLDEST) --resolution lowest-direct --editable '.[$(OWN_EXTRAS)]'
	@$(UV) pip install --quiet --python $(OWN_OLDEST) --requirements tests/oldest/tools.txt
	@$(OWN_PYTEST) tests/oldest/lower_bounds.py tests/guard tests/service $(OWN_IGNORED)
	@$(OWN_PYTEST) --database=postgresql $(OWN_POSTGRESQL)
	@$(OWN_PYTEST) --database=postgresql --replicas=3 $(OWN_REPLICAS)

OPENCODE := 1.18.33

test-coding-agents: $(UV) ## the guard's plugin in the real OpenCode; needs npm
	@npm install --silent --no-save --no-audit --no-fund --prefix .tools/coding-agents opencode-ai@$(OPENCODE)
	@TOOLGATE_TEST_OPENCODE=$(CURDIR)/.tools/coding-agents/node_modules/.bin/opencode \
	  $(RUN) pytest -n $(WORKERS) tests/coding_agents/real_opencode.py

fuzz: $(UV)      ## twenty thousand requests made of the OpenAPI document
	@$(RUN) pytest -n 2 -m slow tests/service/api/test_schemathesis.py

check: lint      ## formatting, lint, import rules, types
	@$(RUN) mypy

lint: $(UV)
	@$(RUN) ruff format --check --quiet .
	@$(RUN) ruff check --quiet .
	@$(RUN) lint-imports --no-cache >/dev/null || $(RUN) lint-imports --no-cache

audit: $(UV)     ## every locked package, for users and for us, against the known vulnerabilities of osv.dev; needs the network
	@$(UV) audit --locked --preview-features audit-command $(ARGS)

format: $(UV)    ## write the formatting
	@$(RUN) ruff format .
	@$(RUN) ruff check --fix .

screenshots: $(UV) ## pictures of the console in docs/screenshots: a real gateway, a month of a small shop, Chromium
	@PYTHONPATH=tests $(RUN) python tests/screenshots/take.py

faults: $(UV)    ## everything fails for ten minutes while twenty clients work; ARGS="--minutes 1 --seed 7 --write"
	@PYTHONPATH=tests $(RUN) python -m support.faults.run $(ARGS)

bench: $(UV)     ## the gateway beside its floor and its peers: 35 minutes, benchmarks/RESULTS.md; ARGS="--only NAME …"
	@$(RUN) python benchmarks/compare.py $(ARGS)

bench-scale: $(UV) ## what size costs: half an hour and 10 GB; ARGS="--database postgresql --entries 3000000"
	@PYTHONPATH=tests $(RUN) python benchmarks/bench_scale.py $(ARGS)

bench-authzen: $(UV) ## an AuthZEN evaluation beside the same check; ARGS="--database postgresql"
	@PYTHONPATH=tests $(RUN) python benchmarks/bench_authzen.py $(ARGS)

bench-freeze: $(UV) ## time until a freeze takes effect on three gateways; ARGS="--database sqlite" for one
	@PYTHONPATH=tests $(RUN) python benchmarks/bench_freeze.py $(ARGS)

bench-replay: $(UV) ## speed of replays of policies; ARGS="--decisions 1000000 --database postgresql"
	@PYTHONPATH=tests $(RUN) python benchmarks/bench_replay.py $(ARGS)

bench-transparency: $(UV) ## transparency log with many leaves: sealing and receipts; ARGS="--leaves 10000000"
	@PYTHONPATH=tests $(RUN) python benchmarks/bench_transparency.py $(ARGS)

bench-pieces: $(UV) ## timings of the pieces; read ratios, not seconds
	@$(RUN) pytest -q -p no:xdist -o python_files='bench_*.py' --benchmark-columns=median,iqr,ops benchmarks

soak: $(UV)      ## ten minutes of load, and what memory does; ARGS="--minutes 60" for longer
	@$(RUN) python benchmarks/compare.py --only soak $(ARGS)

docs: $(UV)      ## the documentation site, in site/; fails on a dead link or a page outside the navigation
	@PYTHONPATH=tests $(RUN) python -m support.site

build: $(UV)     ## wheel and sdist in dist/
	@$(UV) build

lock: $(UV)      ## uv.lock by pyproject.toml, and what the image installs by uv.lock
	@$(UV) lock
	@$(RUN) python service/deploy/export.py requirements

sbom: $(UV)      ## what the gateway is made of, as CycloneDX, in dist/toolgate.cdx.json
	@$(RUN) python service/deploy/export.py sbom dist/toolgate.cdx.json

lint-deploy: $(UV) ## Dockerfile, compose, chart and unit, by the tools of those who run them; needs systemd and nginx
	@$(UV) run --quiet --isolated --no-project --with-requirements service/deploy/lint/requirements.txt \
	  python service/deploy/lint/lint.py

clean:           ## everything that was made here
	rm -rf .venv .venv-apart .venv-oldest .tools dist site .cache .mypy_cache .ruff_cache .pytest_cache
