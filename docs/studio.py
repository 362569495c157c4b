"""The pictures of the studio in the documentation, from a real JupyterLab in a browser.

    python docs/studio.py            # all of them, in some minutes
    python docs/studio.py FOLDER     # the same, kept in another folder

A small run is trained for a cycle; then each page of the studio is opened, and a world is played with the keyboard.
"""
import io
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from browser import Browser, browser, jupyterlab, write_notebook  # noqa: E402

from envgen_nb.agent.clips import animate, few_colours  # noqa: E402
from envgen_nb.cycle.create import create_run  # noqa: E402
from envgen_nb.cycle.run import run_cycles  # noqa: E402
from envgen_nb.cycle.settings import make_settings  # noqa: E402

SETTINGS = dict(num_cycles=3, num_worlds=4, vocabulary="extended", cycle_steps=98_304, final_steps=0, evaluation_runs=2,
                evaluation_episodes=10)
PLAYED = """from envgen_nb.game.simulator import get_simulator
from envgen_nb.studio.play import Play
game = get_simulator("crafter")
Play(game, game.practice("place_table", "extended")[0])"""
MOVES = ["ArrowLeft", "ArrowDown", "ArrowRight", "t", " ", "1", "ArrowUp"]


def picture(seen: Browser, shown: str) -> Image.Image:
    "What one element shows."
    seen.page.wait_for_timeout(800)                          # for the layout to settle
    return Image.open(io.BytesIO(seen.page.locator(shown).first.screenshot())).convert("RGB")


def keep(image: Image.Image, path: Path, height: int) -> None:
    "Keep the upper part of a picture as a small PNG file."
    few_colours(image.crop((0, 0, image.width, min(height, image.height))), kmeans=3).save(path, "PNG", optimize=True)
    print(path, image.size)


def pages(seen: Browser, folder: Path) -> None:
    "The pages of the studio, one after the other."
    page, studio = seen.page, seen.page.locator(".envgen-studio").first

    def tab(name: str) -> None:
        studio.locator(f"[role=tab][aria-label={name}]").click()

    tab("Prompt")
    studio.get_by_label("the filled-in prompt").wait_for()
    kept = studio.get_by_text("Runs are kept in")            # a folder of this machine
    kept.evaluate("line => line.style.visibility = 'hidden'")
    keep(picture(seen, ".envgen-studio"), folder / "studio-prompt.png", 1000)
    tab("Train")
    studio.locator(".envgen-curves svg").first.wait_for()
    keep(picture(seen, ".envgen-studio"), folder / "studio-train.png", 1100)
    tab("History")
    table = page.get_by_role("region", name="prompts")
    table.wait_for()
    table.locator("summary").first.click()
    keep(picture(seen, ".envgen-studio .envgen-pages"), folder / "studio-history.png", 900)
    tab("Watch")
    studio.get_by_label("Steps", exact=True).fill("150")
    page.keyboard.press("Tab")
    studio.get_by_role("button", name=re.compile(r"Watch$")).click()
    page.locator(".envgen-watch-film").nth(1).wait_for(timeout=120_000)
    page.get_by_label("Step", exact=True).focus()
    page.keyboard.press("End")
    keep(picture(seen, ".envgen-studio .envgen-pages"), folder / "studio-watch.png", 1200)
    tab("Frames")
    studio.get_by_label("Who", exact=True).select_option("a player by rules")
    studio.get_by_label("Steps", exact=True).locator("visible=true").fill("60")
    page.keyboard.press("Tab")
    studio.get_by_role("button", name=re.compile(r"Show$")).click()
    page.get_by_role("img", name=re.compile("^frame 0: ")).wait_for(timeout=120_000)
    studio.get_by_label("Frame", exact=True).fill("30")
    page.keyboard.press("Tab")
    page.get_by_role("img", name=re.compile("^frame 30: ")).wait_for()
    keep(picture(seen, ".envgen-studio .envgen-pages"), folder / "studio-frames.png", 900)
    tab("Worlds")
    card = page.locator(".envgen-card").first
    card.locator("img").first.wait_for(timeout=60_000)
    page.get_by_label("Seeds at once").select_option("4")
    card.locator("figure", has_text="seed 3").wait_for(timeout=60_000)
    page.locator("details", has_text="Legend").locator("summary").first.click()
    keep(picture(seen, ".envgen-studio .envgen-pages"), folder / "studio-worlds.png", 884)


def play(seen: Browser, folder: Path) -> None:
    "A world that is played with the keyboard, as a clip."
    seen.open("play.ipynb")
    seen.run_all()
    game, frames = seen.page.get_by_role("application"), []
    game.wait_for(timeout=120_000)
    game.click()
    for number, key in enumerate(MOVES, start=1):
        seen.page.keyboard.press(key)
        seen.page.locator(".envgen-play-status").filter(has_text=f"Step {number},").wait_for()
        frames.append(np.asarray(picture(seen, ".envgen-play")))
    size = tuple(max(frame.shape[k] for frame in frames) for k in (0, 1))
    frames = [np.pad(frame, ((0, size[0] - frame.shape[0]), (0, size[1] - frame.shape[1]), (0, 0)), mode="edge")
              for frame in frames]
    (folder / "studio-play.webp").write_bytes(animate(frames, fps=2, shrink=1))


def main(folder: str = "") -> None:
    made = Path(folder or ROOT / "docs")
    made.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        runs = Path(place) / "notebooks" / "runs"
        create_run(make_settings(**SETTINGS), runs / "first")
        for event in run_cycles(runs / "first"):
            if type(event).__name__ == "Accepted" and event.cycle == "cycle-2":
                break
        write_notebook(runs.parent / "studio.ipynb", "from envgen_nb.studio.studio import Studio\nStudio('runs/first')")
        write_notebook(runs.parent / "play.ipynb", PLAYED)
        with jupyterlab(runs.parent, Path(place) / "home") as lab, browser(lab, pictures=False) as seen:
            seen.page.set_viewport_size({"width": 1400, "height": 2400})
            seen.open("studio.ipynb")
            seen.run_all()
            seen.page.locator(".envgen-studio").first.wait_for(timeout=120_000)
            pages(seen, made)
            play(seen, made)


if __name__ == "__main__":
    main(*sys.argv[1:])
