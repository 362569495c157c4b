# make            this list
# make run        the main job: four EnvGen cycles on Crafter, no key and no GPU needed
# make lab        JupyterLab on copies of the notebooks, in lab/: envgen.ipynb open, the workshops in lab/workshop
# make test       what every change needs, in ten minutes: notebooks, tests, export is clean, lint
# make test-all   the long forms of the tests, and nothing else: half an hour more
# make test-gpu   the tests of learners and of killed runs on the NVIDIA GPU that is there
# make browser    a browser for the tests of the studio, where there is none
# make parity     the compiled Crafter engine beside the package's, compared after every step; STEPS=2000000
# make docs       the documentation as a site, docs/_build/html/index.html, from guides, notebooks and docstrings
# make lock       requirements.lock and requirements-docs.lock anew from pyproject.toml (needs uv)
#
# ARGS goes to the command behind it: make run ARGS="-p designer none -p seed 3"
# PYTHON=python3.12 chooses the Python, VENV=FOLDER where the packages are put (.venv)

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
OLD_NUMPY := $(VENV)/numpy-1.26
OLD_GYMNASIUM := $(VENV)/gymnasium-1.2.2
CLUSTERS := $(VENV)/.clusters
DOCS := $(VENV)/.docs
STEPS ?= 100000

.PHONY: help run test test-all test-gpu browser parity lab docs lock

help:
	@sed -n -e '/^#/!q' -e 's/^# \{0,1\}//p' $(firstword $(MAKEFILE_LIST))

run: $(READY)
	$(BIN)/envgen run crafter $(ARGS)

# ARGS="--durations=0" lists what takes how long.
PYTEST = $(BIN)/pytest -n auto --maxprocesses 8 --durations=10 --durations-min=1

test: $(READY) browser
	$(PYTEST) $(ARGS)

test-all: $(READY) $(OLD_NUMPY) $(OLD_GYMNASIUM) $(CLUSTERS) $(DOCS) browser
	$(PYTEST) --long $(ARGS)

test-gpu: $(READY)
	ENVGEN_TEST_DEVICE=cuda $(PYTEST) tests/test_agent_ppo.py tests/test_agent_learners.py tests/test_cycle_resume.py $(ARGS)

# The kit works with NumPy 1.26, too; this one lies beside the locked one, for one test. There is none for Python 3.13.
$(OLD_NUMPY): | $(READY)
	$(BIN)/python -c "import sys; sys.exit(sys.version_info >= (3, 13))" || exit 0; \
	    $(BIN)/python -m pip install --quiet --no-deps --target $(OLD_NUMPY) numpy==1.26.4

# And the lowest Gymnasium that the kit works with, which is the one that Ray's RLlib asks for.
$(OLD_GYMNASIUM): | $(READY)
	$(BIN)/python -m pip install --quiet --no-deps --target $(OLD_GYMNASIUM) gymnasium==1.2.2

# Ray and Slurm's submitit: extras that only some users want, and whose tests are long ones.
$(CLUSTERS): requirements-clusters.lock | $(READY)
	$(BIN)/python -m pip install --quiet --no-deps -r requirements-clusters.lock
	touch $(CLUSTERS)

# The tests of the studio drive a real browser. Where there is none: Debian's, else the one that Playwright brings.
browser: $(READY)
	@command -v chromium > /dev/null || command -v chromium-browser > /dev/null || command -v google-chrome > /dev/null \
	|| { test "$$(id -u)" = 0 && command -v apt-get > /dev/null \
	    && echo "Installing Debian's chromium for the browser tests." && apt-get update -qq \
	    && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium > /dev/null; } \
	|| { echo "Taking Playwright's Chromium for the browser tests."; $(BIN)/playwright install chromium; } \
	|| { echo "The browser tests need a browser: install chromium or Google Chrome, then make test again." >&2; exit 1; }

parity: $(READY)
	$(BIN)/python tests/crafter_parity.py --steps $(STEPS) $(ARGS)

lab: $(READY)
	$(BIN)/envgen lab $(ARGS)

# Nothing but the first installation needs a network.
docs: $(DOCS)
	$(BIN)/python -m sphinx -q -b html $(ARGS) docs docs/_build/html

$(DOCS): requirements-docs.lock | $(READY)
	$(BIN)/python -m pip install --quiet --no-deps -r requirements-docs.lock
	touch $(DOCS)

# torch goes first, so that nothing else can pull another build of it.
$(READY): requirements.lock requirements-heist.lock pyproject.toml
	@$(PYTHON) -c "import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v <= (3, 13) else 'Python 3.11, 3.12 or 3.13 is needed, this is %d.%d; say which one to use: make run PYTHON=python3.12' % v)"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing the locked packages into $(VENV); this takes a few minutes the first time."
	$(BIN)/python -m pip install --quiet "$$(grep '^torch==' requirements.lock)"
	$(BIN)/python -m pip install --quiet -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps -r requirements-heist.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $(READY)

# The lock covers Python 3.11 to 3.13 on Linux and macOS. What torch itself pins (its CUDA packages) is left to torch.
lock:
	printf "torch==2.13.0\nnumpy<2.5\n" > .lock-constraints
	uv pip compile --universal --python-version 3.11 --extra bench --extra minigrid --extra test --no-annotate --no-header --no-emit-index-url \
	    --no-emit-find-links --constraint .lock-constraints pyproject.toml \
	    | grep -v -E '^(nvidia-|cuda-|triton)' > requirements.lock
	uv pip compile --universal --python-version 3.11 --extra docs --no-annotate --no-header --no-emit-index-url \
	    --no-emit-find-links --constraint .lock-constraints --constraint requirements.lock pyproject.toml \
	    | grep -v -E '^(nvidia-|cuda-|triton)' | grep -v -x -F -f requirements.lock > requirements-docs.lock
	rm .lock-constraints
