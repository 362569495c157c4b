# make            this list
# make run        the main job: four EnvGen cycles on Crafter, no key and no GPU needed
# make lab        JupyterLab on copies of the notebooks, in lab/: envgen.ipynb open, the workshops in lab/workshop
# make app        the studio without code around it, for a class: a name for each, and a board of all
# make human      a strong agent for Crafter, 4 million steps, and its report, with the player by rules beside it
# make test       what every change needs, in ten minutes: notebooks, tests, export is clean, lint
# make test-all   the long forms of the tests, and nothing else: half an hour more
# make test-gpu   the tests of learners and of killed runs on the NVIDIA GPU that is there
# make browser    a browser for the tests of the studio, where there is none: as root with apt-get, else by Playwright
# make parity     the compiled Crafter engine beside the package's, compared after every step; STEPS=2000000
# make docs       the documentation as a site, docs/_build/html/index.html, from guides, notebooks and docstrings
# make lock       the lock files anew from pyproject.toml, with the hashes of all packages (needs uv)
#
# ARGS goes to the command behind it: make run ARGS="-p designer none -p seed 3"
# PYTHON=python3.12 chooses the Python, VENV=FOLDER where the packages are put (.venv)

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TESTS := $(VENV)/.tests
OLD_NUMPY := $(VENV)/numpy-1.26
OLD_GYMNASIUM := $(VENV)/gymnasium-1.2.2
CLUSTERS := $(VENV)/.clusters
CURVES := $(VENV)/mlflow
ENVPOOL := $(VENV)/.envpool
DOCS := $(VENV)/.docs
STEPS ?= 100000

.PHONY: help run human test test-all test-gpu browser parity lab app docs lock

help:
	@sed -n -e '/^#/!q' -e 's/^# \{0,1\}//p' $(firstword $(MAKEFILE_LIST))

run: $(READY)
	$(BIN)/envgen run crafter $(ARGS)

# With the ladders that a person wrote; RUN=FOLDER for another run than the first.
RUN ?= runs/human
human: $(READY)
	$(BIN)/envgen run crafter -p folder $(RUN) -p learner ppo-rare -p preset symbols-long \
	    -p preset_options '{"rarity_coef": 1}' -p vocabulary extended \
	    -p designer ladders -p designer_options '{"file": "nbs/lab/experiments/worlds/steps.json"}' \
	    -p curriculum_options '{"begin": 0.0625}' -p num_cycles 4 -p cycle_steps 1000000 -p final_steps 0 $(ARGS)
	$(BIN)/envgen report $(RUN) --rules --episodes 5

# ARGS="--durations=0" lists what takes how long.
PYTEST = $(BIN)/pytest -n auto --maxprocesses 8 --durations=10 --durations-min=1

test: $(TESTS) browser
	$(PYTEST) $(ARGS)

test-all: $(TESTS) $(OLD_NUMPY) $(OLD_GYMNASIUM) $(CLUSTERS) $(CURVES) $(ENVPOOL) $(DOCS) browser
	$(PYTEST) --long $(ARGS)

test-gpu: $(TESTS)
	ENVGEN_TEST_DEVICE=cuda $(PYTEST) tests/test_agent_ppo.py tests/test_agent_learners.py tests/test_cycle_resume.py $(ARGS)

# The kit works with NumPy 1.26, too; this one is installed beside the locked one, for one test. There is none for Python 3.13.
$(OLD_NUMPY): | $(READY)
	$(BIN)/python -c "import sys; sys.exit(sys.version_info >= (3, 13))" || exit 0; \
	    $(BIN)/python -m pip install --quiet --no-deps --target $(OLD_NUMPY) numpy==1.26.4

# And the lowest Gymnasium that the kit works with, which is the one that Ray's RLlib asks for.
$(OLD_GYMNASIUM): | $(READY)
	$(BIN)/python -m pip install --quiet --no-deps --target $(OLD_GYMNASIUM) gymnasium==1.2.2

# Ray and Slurm's submitit: extras that only some users need, and whose tests are long ones.
$(CLUSTERS): requirements-clusters.lock | $(READY)
	$(LOCKED) -r requirements-clusters.lock
	touch $(CLUSTERS)

# MLflow's client, for one test: the guide on curves.
$(CURVES): requirements-curves.lock | $(READY)
	rm -rf $(CURVES)
	$(LOCKED) --target $(CURVES) -r requirements-curves.lock

# EnvPool's games are large: 0.75 GB, so only the long tests bring them.
$(ENVPOOL): requirements-envpool.lock | $(READY)
	$(LOCKED) -r requirements-envpool.lock
	touch $(ENVPOOL)

# The tests of the studio drive a real browser. Where there is none: Debian's, else the one that Playwright brings.
browser: $(TESTS)
	@command -v chromium > /dev/null || command -v chromium-browser > /dev/null || command -v google-chrome > /dev/null \
	|| { test "$$(id -u)" = 0 && command -v apt-get > /dev/null \
	    && echo "The browser tests need a browser, and there is none here. As root, this now runs apt-get update and" \
	            "apt-get install chromium, for the whole system; Ctrl-C stops it." && apt-get update -qq \
	    && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium > /dev/null; } \
	|| { echo "Taking Playwright's Chromium for the browser tests."; $(BIN)/playwright install chromium; } \
	|| { echo "The browser tests need a browser: install chromium or Google Chrome, then make test again." >&2; exit 1; }

parity: $(TESTS)
	$(BIN)/python tests/crafter_parity.py --steps $(STEPS) $(ARGS)

lab: $(READY)
	$(BIN)/envgen lab $(ARGS)

app: $(READY)
	$(BIN)/envgen app $(ARGS)

# Nothing but the first installation needs a network.
docs: $(DOCS)
	$(BIN)/python -m sphinx -q -b html $(ARGS) docs docs/_build/html
	@echo "The site: file://$(CURDIR)/docs/_build/html/index.html"

$(DOCS): requirements-docs.lock | $(READY)
	$(LOCKED) -r requirements-docs.lock
	touch $(DOCS)

# The lock files hold every package with its version and the hashes of its files; a file that is another one is refused.
# Only torch has no hash: its build is chosen by the machine (CPU, CUDA), and each build has another. It comes last, when
# all that it needs is there but the CUDA packages, which it pins itself. What builds the few packages that are sources
# (pip, setuptools, wheel) comes first, and is locked as well.
LOCKED = $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --require-hashes
TOOLS = awk '/^[^ ]/ { keep = /^(pip|setuptools|wheel)==/ } keep'

$(READY): requirements.lock requirements-torch.lock requirements-heist.lock pyproject.toml
	@$(PYTHON) -c "import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v <= (3, 13) else 'Python 3.11, 3.12 or 3.13 is needed, this is %d.%d; say which one to use: make run PYTHON=python3.12' % v)"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing the locked packages into $(VENV); this takes a few minutes the first time."
	$(TOOLS) requirements.lock > $(VENV)/tools.lock
	$(LOCKED) -r $(VENV)/tools.lock
	$(LOCKED) -r requirements.lock
	$(BIN)/python -m pip install --quiet -r requirements-torch.lock
	@echo "For Heist: OpenAI's Procgen in builds that others than OpenAI publish, see requirements-heist.lock."
	$(LOCKED) -r requirements-heist.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $(READY)

# What only tests need: pytest, a second opinion on statistics, the old gym that Crafter must not mind.
$(TESTS): requirements-test.lock $(READY)
	$(LOCKED) -r requirements-test.lock
	touch $(TESTS)

# The lock covers Python 3.11 to 3.13 on Linux and macOS. What torch itself pins (its CUDA packages) is left to torch.
COMPILE = uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
    --no-emit-index-url --no-emit-find-links --constraint .lock-torch
EXTRAS = --extra bench --extra minigrid --extra walker --extra frames
NO_CUDA = awk '/^[^ ]/ { keep = !/^(torch==|nvidia-|cuda-|triton)/ } keep'
NOT_IN = awk 'FNR == NR { there[$$0]; next } /^[^ ]/ { keep = !($$0 in there) } keep'
HEAD = sed -n 's/ *\\$$//; /^[a-z]/p'

lock:
	{ cat requirements-torch.lock; echo "numpy<2.5"; } > .lock-torch
	echo pip | $(COMPILE) $(EXTRAS) --extra test pyproject.toml - | $(NO_CUDA) > .lock-all
	echo pip | $(COMPILE) $(EXTRAS) --constraint .lock-all pyproject.toml - \
	    | $(NO_CUDA) > requirements.lock
	$(NOT_IN) requirements.lock .lock-all > requirements-test.lock
	$(COMPILE) --extra docs --constraint .lock-all pyproject.toml | $(NO_CUDA) \
	    | $(NOT_IN) .lock-all - > requirements-docs.lock
	for name in heist clusters curves envpool; do \
	    { grep '^#' requirements-$$name.lock; $(HEAD) requirements-$$name.lock | $(COMPILE) --no-deps -; } > .lock-new \
	        && mv .lock-new requirements-$$name.lock || exit 1; \
	done
	rm -f .lock-torch .lock-all
