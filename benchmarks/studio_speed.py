"""How fast the studio opens and reacts, on a run of 50 cycles, in a folder of 200 runs; and what it costs training.

    python benchmarks/studio_speed.py FOLDER               # in the kernel, without a browser
    python benchmarks/studio_speed.py FOLDER --browser     # the same, as it is seen in a real JupyterLab
    python benchmarks/studio_speed.py FOLDER --training    # processor time per step from the studio, against without

FOLDER keeps the runs that are measured: a real one of 50 short cycles, and 200 copies of its beginning. To make them
takes a few minutes the first time.
Each line has seconds on the clock and seconds of the processor, which are as many where nothing else runs. The aims:
opened in 2 s, each reaction in 0.3 s, training at most 5% slower.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.folder import RunFolder
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.runs import label_run
from envgen_nb.cycle.settings import make_settings
from envgen_nb.results import kept_summary

ROOT = Path(__file__).parent.parent
SHORT = dict(num_worlds=4, cycle_steps=8_192, final_steps=0, evaluation_runs=1, evaluation_episodes=4, seed=1)
TRAINED = dict(num_cycles=1, num_worlds=4, cycle_steps=200_000, final_steps=0, evaluation_runs=1,
               evaluation_episodes=4, seed=3, threads=1)


def runs(folder: Path, cycles: int = 50, count: int = 200) -> Path:
    "The run of many cycles, and a folder `runs` with it and many others; made where they are not there."
    long = folder / "runs" / "long"
    if not (long / "run.json").exists():
        create_run(make_settings(num_cycles=cycles, **SHORT), long)
    for event in run_cycles(long):
        if type(event).__name__ == "Evaluated":
            print(f"made: {event.cycle}", end="\r", file=sys.stderr)
    files = ("run.json", "events.jsonl")
    for k in range(count):
        path = folder / "runs" / f"copy-{k:03}"
        if path.exists():
            continue
        shutil.copytree(long, path, ignore=lambda where, names: [
            name for name in names if Path(where) == long and name not in (*files, "cycle-0", "cycle-1", "cycle-2")
            or name.endswith((".pt", ".png")) or name == "tensorboard"])
        info = json.loads((path / "run.json").read_text())
        info["settings"] |= {"seed": k // 4, "mixture_ratio": (0.5, 0.25)[k % 2], "num_cycles": (2, 3)[k // 2 % 2]}
        (path / "run.json").write_text(json.dumps(info))
        label_run(path, name=f"share {k % 4}", tags=("even",) if k % 2 == 0 else ())
        kept_summary(path)
    return long


@contextlib.contextmanager
def timed(what: str, aim: float, seen: bool = False) -> Iterator[None]:
    "Print how long something takes, and whether that is more than it should be; `seen`: by the clock."
    clock, work = time.perf_counter(), time.process_time()
    yield
    clock, work = time.perf_counter() - clock, time.process_time() - work
    used = "" if seen else f"  {work:6.2f} s of the processor"
    print(f"{what:58} {clock:6.2f} s{used}  {'' if (clock if seen else work) <= aim else f'OVER {aim} s'}")


def in_the_kernel(long: Path) -> None:
    "Open, and react, without a browser."
    os.chdir(long.parent.parent)                                 # the runs folder is `runs`
    with timed("the imports", 60):
        from envgen_nb.results.report import write_report
        from envgen_nb.studio.conversation import history_view
        from envgen_nb.studio.play import watch_view
        from envgen_nb.studio.studio import PAGES, Studio
    with timed("the studio opens on a run of 50 cycles", 2):
        studio = Studio(long)
        studio._picture()
    for name in PAGES:
        with timed(f"the page {name} opens for the first time", 2):
            studio.open_page(name)
    for name in PAGES:
        with timed(f"back to the page {name}", 0.3):
            studio.open_page(name)
    studio.open_page("Worlds")
    for cycle in ("cycle-10", "cycle-30"):
        with timed(f"the worlds of {cycle}", 0.3):
            studio.worlds.which.value = cycle
    with timed("back to the worlds of cycle-10", 0.3):
        studio.worlds.which.value = "cycle-10"
    with timed("all that follows an event", 0.3):
        studio.session.version += 1
    compare = studio.tabs.children[list(PAGES).index("Compare")].children[0]
    with timed("Compare: four runs are chosen", 0.3):
        compare.state.table.chosen = [str(path.resolve()) for path in sorted(long.parent.glob("copy-00[0-3]"))]
    with timed("Compare: and a baseline", 0.3):
        compare.state.table.baseline = compare.state.table.chosen[0]
    with timed("Compare: twenty runs", 0.3):
        compare.state.table.chosen = [str(path.resolve()) for path in sorted(long.parent.glob("copy-01?"))] * 2
    with timed("Compare: the folder is read again", 0.3):
        compare.state.read()
    with timed("Watch on its own", 2):
        watch_view(studio.session)
    with timed("History on its own", 2):
        history_view(studio.session)
    with timed("the report is written", 30):
        path = write_report(RunFolder(long))
    print(f"{'its size':58} {path.stat().st_size / 1e6:6.2f} MB")
    print("error:", studio.session.error or "none")


NOTEBOOK = """
from envgen_nb.studio.studio import Studio
studio = Studio("runs/long")
"""


def in_the_browser(long: Path) -> None:
    "The same, as a person sees it."
    sys.path.insert(0, str(ROOT / "tests"))
    from browser import browser, jupyterlab, write_notebook
    home = long.parent.parent / "home"
    shutil.rmtree(home, ignore_errors=True)
    write_notebook(long.parent.parent / "speed.ipynb", NOTEBOOK.strip(), "studio")
    with jupyterlab(long.parent.parent, home) as lab, browser(lab, pictures=False) as seen:
        page, root = seen.page, seen.page.locator(".envgen-studio").first
        seen.open("speed.ipynb")
        with timed("first cell: imports, and the state of the studio", 60, seen=True):
            seen.command("notebook:run-cell-and-select-next")
        with timed("second cell: the studio is to be seen", 2, seen=True):
            seen.command("notebook:run-cell-and-select-next")
            root.get_by_role("tab", name="Measure", exact=True).wait_for()
        page.wait_for_timeout(5000)
        for again in (False, True):
            for name, sign in SEEN.items():
                page.wait_for_timeout(1000)
                with timed(f"{'back to ' * again}{name}", 0.3 if again else 2, seen=True):
                    root.get_by_role("tab", name=name, exact=True).click()
                    page.locator(sign).filter(visible=True).first.wait_for(timeout=60_000)
        root.get_by_role("tab", name="Worlds", exact=True).click()
        first, run = root.locator(".envgen-card img").first, RunFolder(long)
        shown = run.worlds(run.cycles[-1])[0]
        for cycle in run.cycles[10::10]:
            if (world := run.worlds(cycle)[0]) == shown:             # the picture would be the same
                continue
            shown = world
            page.wait_for_timeout(1000)
            before = first.get_attribute("src")
            with timed(f"the worlds of {cycle}", 0.3, seen=True):
                root.get_by_label("Cycle", exact=True).filter(visible=True).select_option(cycle.replace("-", " "))
                page.wait_for_function("before => document.querySelector('.envgen-studio .envgen-card img').src"
                                       " !== before", arg=before)
        root.get_by_role("tab", name="Compare", exact=True).click()
        board = root.locator(".envgen-runs")
        page.wait_for_timeout(1000)
        with timed("200 runs are filtered", 0.3, seen=True):
            board.get_by_label("Filter").fill("even copy-1")
            page.wait_for_function("() => /^50 of/.test(document.querySelector('.envgen-runs-bar [role=status]')"
                                   ".textContent)")
        with timed("and sorted", 0.3, seen=True):
            board.get_by_role("button", name="seed").click()
            board.locator("th[aria-sort=descending]").wait_for()
        with timed("one is shown beside another", 0.3, seen=True):
            board.get_by_role("checkbox", name="show share 0 (copy-100)").check()
            root.locator("td", has_text="share 0 (copy-100)").nth(1).wait_for()
        print("complaints:", seen.errors, lab.complaints())


SEEN = {"Prompt": ".envgen-studio textarea", "Generate": ".envgen-studio h3:text-is('The conversation')",
        "Worlds": ".envgen-card img", "Train": ".envgen-curves svg", "Measure": ".envgen-track",
        "Compare": ".envgen-runs tbody tr", "Watch": ".envgen-watch", "History": "[aria-label=prompts] tbody tr"}

ALONE = """
import resource, sys
from envgen_nb.cycle.run import run_cycles
before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
list(run_cycles(sys.argv[1]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_utime - before)
"""
TRAIN = """
import resource
from envgen_nb.studio.studio import Studio
studio = Studio("{folder}")
studio.open_page("Train")
"""
GO = """
before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
def ended(change):
    if not change["new"]:
        open("{folder}/user-seconds", "w").write(str(resource.getrusage(resource.RUSAGE_SELF).ru_utime - before))
studio.session.observe(ended, "busy")
studio.session.all()
"""


def training(folder: Path, times: int = 2) -> None:
    "User seconds of the process that trains: with the studio's page open in a browser, and alone."
    sys.path.insert(0, str(ROOT / "tests"))
    from browser import browser, jupyterlab, write_notebook
    home = folder / "home"
    shutil.rmtree(home, ignore_errors=True)
    found: dict[str, list[float]] = {"alone": [], "from the studio": []}
    with jupyterlab(folder, home) as lab, browser(lab, pictures=False) as seen:
        for k in range(times):
            paths = [folder / "pace" / f"{name}-{k}" for name in ("alone", "studio")]
            for path in paths:
                shutil.rmtree(path, ignore_errors=True)
                create_run(make_settings(**TRAINED), path)
            done = subprocess.run([sys.executable, "-c", ALONE, paths[0]], check=True, capture_output=True, text=True)
            found["alone"].append(float(done.stdout.split()[-1]))
            write_notebook(folder / f"pace-{k}.ipynb", TRAIN.format(folder=paths[1]).strip(), "studio",
                           GO.format(folder=paths[1]).strip())
            seen.open(f"pace-{k}.ipynb")
            for _ in range(2):
                seen.command("notebook:run-cell-and-select-next")
            seen.page.locator(".envgen-studio").first.wait_for(timeout=120_000)
            seen.page.wait_for_timeout(15_000)                   # the browser tidies up after loading
            seen.command("notebook:run-cell-and-select-next")
            while not (paths[1] / "user-seconds").exists():
                seen.page.wait_for_timeout(500)
            found["from the studio"].append(float((paths[1] / "user-seconds").read_text()))
            lab.end_kernels()
    for name, seconds in found.items():
        print(f"{name:20} {'  '.join(f'{one:.1f}' for one in seconds)} s of the processor (user)")
    alone, ours = (min(seconds) for seconds in found.values())
    print(f"ratio of the smallest: {ours / alone:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--browser", action="store_true")
    parser.add_argument("--training", action="store_true")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.training:
        training(given.folder.resolve())
    else:
        (in_the_browser if given.browser else in_the_kernel)(runs(given.folder.resolve()))
