"""The studio without code around it, in a real browser: names, five windows at once, the board. No time is asserted."""
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from axe_playwright_python.sync_playwright import Axe
from browser import PATIENCE, free_port
from browser import chromium as start
from playwright.sync_api import Browser, Page

from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.folder import RunFolder
from envgen_nb.cycle.settings import make_settings
from envgen_nb.experiment.folder import ExperimentFolder
from envgen_nb.game.files import holder

NAMES = ("ada", "alan", "emmy", "grace", "kurt")


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path, int]]:
    """The address of `envgen app`, the folder of the class, its process; a short run is prepared for each name."""
    shared, url = tmp_path_factory.mktemp("class"), f"http://127.0.0.1:{free_port()}"
    for seed, name in enumerate(NAMES):
        create_run(make_settings(num_cycles=1, num_worlds=2, cycle_steps=8_192, final_steps=0, evaluation_runs=1,
                                 evaluation_episodes=4, threads=1, seed=min(seed, 3)), shared / name / "runs" / "first")
    log = (shared.parent / "voila.log").open("w")
    command = [sys.executable, "-m", "envgen_nb", "app", "--folder", str(shared), "--no-browser", "--port",
               url.rpartition(":")[2], "--MappingKernelManager.cull_idle_timeout=5"]
    process = subprocess.Popen(command, stdout=log, stderr=log, cwd=shared.parent, start_new_session=True)
    for _ in range(300):
        try:
            urllib.request.urlopen(f"{url}/voila/static/favicon.ico", timeout=1)
            break
        except OSError:
            assert process.poll() is None, Path(log.name).read_text()
            time.sleep(0.2)
    yield url, shared, process.pid
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with start() as found:
        yield found


def enter(browser: Browser, url: str, name: str, width: int = 1400, scheme: str = "light") -> Page:
    """A new window, in which a name has been written."""
    page = browser.new_context(viewport={"width": width, "height": 1000}, color_scheme=scheme).new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(url, wait_until="domcontentloaded")
    page.get_by_label("Your name").fill(name)
    page.get_by_role("button", name="Begin").click()
    page.get_by_role("tab", name="Prompt").wait_for()
    return page


@pytest.mark.long
def test_five_at_once(app, chromium, tmp_path):
    """Each trains in a window of their own; the board has all of them, and puts in order what can be compared."""
    url, shared, process = app
    shots = Path(os.environ.get("ENVGEN_SCREENSHOTS", tmp_path))
    pages = {name: enter(chromium, url, name) for name in NAMES}
    assert all("import" not in page.locator("body").inner_text() for page in pages.values())              # no code
    for page in pages.values():
        page.get_by_role("button", name="All cycles").click()
    for name, page in pages.items():
        page.get_by_role("status").filter(has_text="finished").first.wait_for(timeout=300_000)
        assert RunFolder(shared / name / "runs" / "first").finished()
    page = pages["ada"]
    page.get_by_role("button", name="Board").click()
    board = page.locator(".envgen-box", has_text="The latest run of each name")
    board.get_by_role("cell", name="kurt").wait_for()
    assert [name for name in NAMES if board.get_by_role("cell", name=name, exact=True).count() == 1] == [*NAMES]
    text = board.inner_text()
    assert "The seeds differ" in text and "same settings, seed and numbers: grace, kurt." in text
    page.screenshot(path=shots / "app-board.png")
    found = Axe().run(page, ".envgen-studio")
    assert found.violations_count == 0, found.generate_report()
    page.get_by_role("button", name="Large text").click()
    page.wait_for_timeout(500)
    page.screenshot(path=shots / "app-large.png")
    for name in NAMES:
        pages[name].context.close()


@pytest.mark.long
def test_a_prompt_with_several_seeds(app, chromium):
    """From the page Train: two seeds of the prompt, then plain PPO beside them, and the answer."""
    url, shared, process = app
    create_run(make_settings(num_cycles=1, num_worlds=2, cycle_steps=8_192, final_steps=0, evaluation_runs=1,
                             evaluation_episodes=4, seed=5), shared / "rosa" / "runs" / "first")
    page = enter(chromium, url, "rosa")
    page.get_by_role("tab", name="Train").click()
    page.get_by_label("Seeds", exact=True).fill("2")
    page.get_by_label("Called").fill("my words")
    page.get_by_role("button", name="Run this prompt with so many seeds").click()
    page.get_by_text("2 of 2 runs done").first.wait_for(timeout=240_000)
    page.get_by_role("button", name="Plain PPO beside it").click()
    page.get_by_text("4 of 4 runs done").first.wait_for(timeout=240_000)
    page.get_by_text(re.compile("plain-ppo and my-words differ by")).first.wait_for()
    folder, = (shared / "rosa" / "runs").glob("seeds-of-*")
    found = ExperimentFolder(folder)
    assert found.experiment.runs() == [("my-words", 5), ("plain-ppo", 5), ("my-words", 6), ("plain-ppo", 6)]
    assert all(len(of) == 2 for of in found.summaries().values())
    assert (folder / "files" / "my-words-templates" / "first.md").exists()
    page.context.close()


@pytest.mark.long
def test_who_comes_back_finds_the_run(app, chromium, tmp_path):
    """Training goes on when its window is closed; a second window shows it; the processes end by themselves."""
    url, shared, process = app
    shots = Path(os.environ.get("ENVGEN_SCREENSHOTS", tmp_path))
    folder = shared / "sofia" / "runs"
    create_run(make_settings(num_cycles=1, num_worlds=2, cycle_steps=300_000, final_steps=0, evaluation_runs=1,
                             evaluation_episodes=2, threads=1), folder / "first")
    page = enter(chromium, url, "Sofia")
    page.get_by_role("button", name="All cycles").click()
    page.get_by_role("status").filter(has_text="steps/s").first.wait_for()
    page.close()
    page = enter(chromium, url, "sofia", 420, "dark")
    page.get_by_role("alert").filter(has_text="first is being worked on in another window").wait_for()
    page.screenshot(path=shots / "app-phone.png")
    until = time.monotonic() + 240
    while holder(folder / "first"):
        assert time.monotonic() < until
        time.sleep(0.5)
    page.get_by_role("button", name="Open", exact=False).first.click()
    page.get_by_role("status").filter(has_text="the run is finished").or_(
        page.get_by_text("The run is finished").first).first.wait_for()
    assert [path.name for path in folder.iterdir()] == ["first"]
    page.context.close()
    until = time.monotonic() + 120
    while [child for child in psutil.Process(process).children() if is_kernel(child)]:
        assert time.monotonic() < until, "a window was closed, and its process is still there"
        time.sleep(1)


def is_kernel(child):
    """Whether a child process of the server is a kernel that runs: one that has ended has no command line."""
    try:
        return "ipykernel" in " ".join(child.cmdline())
    except psutil.NoSuchProcess:                              # a process that has ended, or waits for its parent
        return False


def test_a_name_is_a_folder(app, chromium):
    """What is no name is refused in words, and nothing is made outside the folder of the class."""
    url, shared, process = app
    page = chromium.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(url, wait_until="domcontentloaded")
    page.get_by_label("Your name").fill("../elsewhere")
    page.get_by_role("button", name="Begin").click()
    page.get_by_role("alert").filter(has_text="a name begins with a letter or a digit").wait_for()
    assert not (shared.parent / "elsewhere").exists()
    page.close()
