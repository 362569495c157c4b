"""How the tests are shared among processes, what they share, and one line of progress per file.

`pytest` (`make test`) runs what every change needs. `pytest --long` (`make test-all`) runs the long forms and nothing
else: the tests marked `long`, those that ask for the fixture `long` and are longer with it, and those of hypothesis,
with more examples.

With several processes (`-n 2`) the tests of a file stay in one, so that what a file makes once is made once; tests of
the files in `SPREAD` need nothing of each other and go wherever there is room. All browser tests are one group: one
JupyterLab serves them.
"""
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from browser import Browser, Lab, browser, jupyterlab
from hypothesis.configuration import set_hypothesis_home_dir

SPREAD = ("test_notebooks", "test_repository")                                    # each test for itself
BROWSER = ("test_studio_lab", "test_studio_browser", "test_studio_experiment", "test_studio_watch",     # one JupyterLab
           "test_workshop_lab")
FIRST = (*BROWSER, "test_batch_together", "test_readme", "test_batch", "test_studio", "test_cycle_resume")
EXAMPLES = {"short": 30, "long": 300}                                             # of each test of hypothesis


COMPILED = """
from envgen_nb.agent.on_policy import PPO
from envgen_nb.agent.presets import get_preset
from envgen_nb.agent.train import train
from envgen_nb.game.simulator import make_vec
preset = get_preset("symbols", num_envs=4, rollout_steps=4)
venv = make_vec("crafter", num_envs=4, obs="symbols", num_threads=2)
train(PPO(preset, venv.single_observation_space, venv.single_action_space, 0), venv, 16)
"""


def pytest_sessionstart(session: pytest.Session) -> None:
    """With several processes: compile once what they would all compile at the same time."""
    if getattr(session.config.option, "numprocesses", None) and not hasattr(session.config, "workerinput"):
        subprocess.run([sys.executable, "-c", COMPILED], check=True, stderr=subprocess.DEVNULL)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the long forms of the tests, and nothing else")


def group(path: Path) -> str | None:
    """The group of a file's tests; None: each test for itself."""
    return None if path.stem in SPREAD else "browser" if path.stem in BROWSER else path.stem


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are cores: many tests wait, for a browser, a server or a process of their own."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Groups of tests to processes, in the order of the tests."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group(Path(nodeid.partition("::")[0])) or nodeid

    config.option.loadscopereorder = False
    return Groups(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the tests, and put the files that take longest first, tests that go wherever there is room last."""
    chosen, left = [], []
    for item in items:
        long = item.get_closest_marker("long") is not None
        both = "long" in getattr(item, "fixturenames", ()) or hypothesis.is_hypothesis_test(getattr(item, "obj", None))
        (chosen if (long or both if config.getoption("long") else not long) else left).append(item)
    items[:] = sorted(chosen, key=lambda item: (item.path.stem in SPREAD, item.path.stem not in FIRST))
    config.hook.pytest_deselected(items=left)


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What stable-baselines3 and datasets write, and the servers that tests name, are in the folder of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        patch.setenv("SB3_LOGDIR", str(tmp_path_factory.mktemp("sb3")))
        patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("datasets")))
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture(scope="session")
def long(request: pytest.FixtureRequest) -> bool:
    """Whether this is the long form of a test."""
    return request.config.getoption("long")


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab for all tests that need one."""
    folder = tmp_path_factory.mktemp("lab")
    with jupyterlab(folder / "notebooks", folder / "home") as one:
        yield one


@pytest.fixture(scope="module")
def desk(lab: Lab, long: bool) -> Iterator[Browser]:
    """A browser before it. Only while the tests of a file need it: Playwright's event loop disturbs other tests."""
    with browser(lab, pictures=long) as one:
        yield one


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """How it looked when a test of the browser failed."""
    report = yield
    if report.failed and "desk" in getattr(item, "funcargs", {}):
        seen = item.funcargs["desk"]
        seen.page.screenshot(path=seen.shots / f"failed-{item.name}.png")
    return report


class Progress:
    """A line for each file whose tests have all ended, and one at once for each failure."""

    def __init__(self, reporter: pytest.TerminalReporter):
        self.reporter = reporter
        self.expected, self.ended, self.seconds, self.found = Counter(), Counter(), Counter(), {}    # by file

    def expect(self, names: list[str]) -> None:
        self.expected = Counter(name.partition("::")[0] for name in names)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:
            self.expect([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: list[str]) -> None:
        self.expect(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """No letters."""
        if report.when == "call" or not report.passed:
            return report.outcome, "", ""
        return "", "", ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.partition("::")[0]
        found = self.found.setdefault(name, Counter())
        self.seconds[name] += report.duration
        if report.failed or report.skipped or report.when == "call":
            found["failed" if report.failed else "skipped" if report.skipped else "passed"] += 1
        if report.failed:
            self.reporter.write_line(f"FAILED {report.nodeid} ({report.when})", red=True)
        if report.when == "teardown":
            self.ended[name] += 1
            if self.ended[name] == self.expected[name]:
                done, all_ = sum(self.ended.values()), sum(self.expected.values())
                counts = ", ".join(f"{count} {what}" for what, count in sorted(found.items()))
                self.reporter.write_line(f"[{100 * done // all_:3}%] {name}: {counts}, {self.seconds[name]:.0f} s")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    with contextlib.suppress(ValueError):              # in another thread than the main one
        if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
            # In the background of a shell, Ctrl-C is ignored, and would be by the programs that the tests start.
            signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("OMP_NUM_THREADS", "1")      # or the processes' threads wait for each other most of the time
    set_hypothesis_home_dir(Path(tempfile.gettempdir()) / "envgen_nb-hypothesis")
    for name, examples in EXAMPLES.items():
        hypothesis.settings.register_profile(name, max_examples=examples, deadline=None, database=None)
    hypothesis.settings.load_profile("long" if config.getoption("long") else "short")
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter and not config.getoption("verbose") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(reporter), "progress-per-file")
