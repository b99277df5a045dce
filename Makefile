# `make venv` once, `make check` before a commit. `make ci` is what .ci/run runs; tests/README.md explains the levels.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:

PYTHON ?= python3
VENV ?= .venv
# First on the PATH, so that each tool and its Python come from the virtualenv; without one, the active environment serves.
export PATH := $(abspath $(VENV))/bin:$(PATH)
# The pinned wheel contains its own pyright.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.PHONY: venv check ci thorough release bench test snapshots site pin format clean

venv:
	PYTHON=$(PYTHON) tools/environment $(VENV)

# Lint, types, import contracts, fast tests, and the real program once. STAGE="lint fast" runs only these.
check:
	tools/stages check $(STAGE)

# A new environment from the pins, then everything that guards a landing.
ci:
	.ci/run $(STAGE)

# Everything at full size; what has a valid result is skipped. STAGE="chaos-workers crash" runs only these.
thorough:
	tools/stages thorough $(STAGE)

# Wheel, sdist, checksums, requirements by hash, SBOM and provenance in dist/, after each was installed and used.
release:
	python tools/package $(addprefix --extra ,$(RELEASE))

# The extras that a release is tried with.
RELEASE ?= data explore local

# The short form of every benchmark that has one; BENCH="orchestration" runs only these.
BENCH ?= orchestration governor affinity scale overhead chaos paper_sizes explore rows sandbox humaneval society integrity map

bench:
	@for name in $(BENCH); do
		started=$$SECONDS
		python -m benchmarks.$$name --short
		echo "-- benchmarks.$$name --short: $$((SECONDS - started)) s"
	done

# TESTS="tests/core -k loop" for a part of them.
test:
	pytest -n 2 -m "not slow and not real_model and not thorough" $(TESTS)

# Update the texts in tests/snapshots; read the diff before you commit it.
snapshots:
	pytest -n 2 -m "not real_model and not thorough" --update-snapshots $(TESTS)
	git --no-pager diff --stat -- tests/snapshots

# The documents as a site, in build/site.
site:
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet

pin:
	tools/pin

format:
	ruff check --fix .
	ruff format .

clean:
	rm -rf build dist .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} +
