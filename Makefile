.DEFAULT_GOAL := help
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# tests mostly wait, for servers of their own, so two at a time are twice as fast
JOBS ?= 2
MINUTES ?= 2

.PHONY: help install demo test simulation model soak matrix bugs docs serve lowest pythons size picture up down logs integration bench check format lint types fix clean

help:  ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## */  make \1\t/' | expand -t 18

install: $(VENV)/installed  ## create the environment

# the stamp is made anew when the dependencies change
$(VENV)/installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,docs]'
	@touch $@

demo: install  ## see it work: two workers, some hundred workflows, one worker killed
	$(BIN)/lock-interceptor demo $(ARGS)

test: install  ## run everything in tests/ on embedded servers
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(ARGS)

simulation: install  ## simulate thousands of waiters over hours, and draw docs/waiting.svg
	$(BIN)/python tests/waiting_simulation.py --svg docs/waiting.svg

model: install  ## explore every state of a failover, lease and grace, and print what is safe
	$(BIN)/python tests/failover_model.py

soak: install  ## random faults on real servers for MINUTES=2, then the history is checked
	$(BIN)/python tests/soak.py --minutes $(MINUTES) $(ARGS)

matrix: install  ## every fault on Valkey, then on redis-server, each history checked
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile tests/test_faults_*.py tests/test_lease_without_keeper.py $(ARGS)
	MATRIX_ON=redis $(BIN)/python -m pytest -n $(JOBS) --dist loadfile tests/test_faults_*.py tests/test_lease_without_keeper.py $(ARGS)

bugs: install  ## put deliberate faults into a copy, and see each of them caught
	$(BIN)/python tests/seeded_bugs.py $(ARGS)

docs: install  ## build the documentation into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

serve: install  ## show the documentation in a browser, and follow changes
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

lowest: install  ## the main tests with the lowest versions of all libraries
	$(BIN)/python tests/compatibility.py lowest $(ARGS)

pythons: install  ## the main tests on each Python that is supported and installed here
	$(BIN)/python tests/compatibility.py pythons $(ARGS)

size: install  ## how much it adds to an installation, and to a process's start
	$(BIN)/python tests/install_size.py

picture: install  ## draw docs/images/web-ui.png; needs chromium and chromium-driver
	$(BIN)/python tests/web_ui_picture.py

up:  ## start Temporal (Web UI on port 8233) and Redis in containers
	docker compose up --detach --wait

down:  ## remove these containers, and what they have stored
	docker compose --profile '*' down --volumes --remove-orphans

logs:  ## follow what they say
	docker compose --profile '*' logs --follow

integration: install  ## run the tests on docker-compose.yml, with containers killed, paused and cut off
	$(BIN)/python -m pytest integration $(ARGS)

bench: install  ## measure it beside its peers and the floor, ONLY=store; without ONLY also docs/benchmarks.md
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,docs,bench]'
	$(BIN)/python benchmarks/bench.py $(if $(ONLY),--only $(ONLY)) $(ARGS)

check: format lint types test  ## what CI runs

format: install  ## is everything formatted? (make fix does it)
	$(BIN)/ruff format --check .

lint: install  ## lint
	$(BIN)/ruff check .

types: install  ## check the types
	$(BIN)/mypy
	$(BIN)/mypy --python-version 3.14

fix: install  ## format, and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove the environment and all caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
