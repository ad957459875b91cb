# make loop   one round of the loop on this machine: installs what it needs into .venv, runs, says where the report is
# make loop SYSTEM=worldloop   the same for a published system, a file of configs/system (docs/systems.md)
# make test   all tests but the long kills and faults
# make survival  everything killed and broken on purpose, and the longest tests: an hour or more (docs/reliability.md)
# make loop SYSTEM=worldloop SCALE=one_gpu   as large as a file of configs/scale says
# make clean  remove what `make loop` made in first rounds, installed packages aside

PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
ROUNDS ?= 1
SYSTEM ?=
SCALE ?= laptop
LOOP ?= $(or $(SYSTEM),default)
TORCH := $(shell grep -i '^torch==' constraints.txt)
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: loop test survival clean

loop: .venv/installed-sim .venv/renderer
	@test -z "$(SYSTEM)" -o -d "loops/$(LOOP)" || $(BIN)/coevo new $(LOOP) --system $(SYSTEM) --scale $(SCALE)
	@test -z "$(SYSTEM)" || grep -q "scale: $(SCALE)$$" loops/$(LOOP)/round.yaml || { echo "loops/$(LOOP) was made at another scale than $(SCALE); say SCALE=... as it was, or make one beside it: coevo new NAME --system $(SYSTEM) --scale $(SCALE)"; exit 1; }
	@$(BIN)/coevo run --rounds $(ROUNDS) --loop $(LOOP)

test: .venv/installed-sim-ray-dev .venv/renderer
	@# Without a browser, one test is skipped and says why.
	@$(BIN)/python -m scripts.prepare_system browser || true
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(TESTS)

survival: .venv/installed-sim-ray-dev .venv/renderer
	@# One at a time: a kill must find its victim, and the machine belongs to it.
	@$(BIN)/python -m pytest -m "survival or not survival" --timeout 3600 tests/survival
	@$(BIN)/python -m pytest -m survival --timeout 3600 --ignore tests/survival tests

clean:
	@! grep -L "^round: i001$$" round.yaml loops/*/round.yaml 2>/dev/null | grep . || { echo "these are past their first round, whose results later ones stand on; keep them ('coevo gc' frees what nobody needs), or clone anew"; exit 1; }
	rm -rf data .local .dvc/cache .dvc/tmp dvc.lock start/dvc.lock loops/*/dvc.lock loops/*/start/dvc.lock

# A stamp file's name lists the extras; it is older than pyproject.toml when an install is due.
.venv/installed-%: pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing packages into .venv (once, some minutes)"
	@# PyTorch first and alone: an installed build is kept by what follows, and nothing drags in its companions.
	@$(BIN)/pip install -qq "$(TORCH)"
	@$(BIN)/pip install -qq -c constraints.txt -e ".[$(subst -,$(comma),$*)]"
	@touch $@

.venv/renderer: scripts/prepare_system.py | .venv/installed-sim
	@$(BIN)/python -m scripts.prepare_system renderer
	@touch $@

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "no Python found; install Python 3.11 or newer, or say which: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; say which: make PYTHON=/path/to/python3.11")'
	@$(PYTHON) -m venv .venv || { echo "the module venv is missing: sudo apt-get install -y python3-venv"; exit 1; }

comma := ,
