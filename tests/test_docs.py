"""The documentation as a site: it builds without a warning and without a network, and every link in it leads somewhere.

All of it in the long form, as it needs the packages of requirements-docs.lock. What stands in the sources is tested by
`test_readme.py`.
"""
import html.parser
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
from pathlib import Path

import pytest
from browser import chromium

pytestmark = pytest.mark.long
ROOT = Path(__file__).parent.parent
COMMAND = "-m sphinx -q -b html"


class Page(html.parser.HTMLParser):
    """What a page calls its places, where it leads, and what it loads."""

    def __init__(self, path: Path):
        super().__init__()
        self.places, self.leads, self.loads, self.title = set(), [], [], ""
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        said = dict(attributes)
        self.places |= {said[key] for key in ("id", "name") if said.get(key)}
        if tag == "a" and said.get("href"):
            self.leads.append(said["href"])
        if tag in ("img", "script", "source") and said.get("src"):
            self.loads.append(said["src"])
        if tag == "link" and said.get("rel") in ("stylesheet", "icon"):
            self.loads.append(said["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site of a copy of the repository, made by the command of `make docs`, which may not reach any network."""
    pytest.importorskip("myst_nb", reason="make test-all installs requirements-docs.lock")
    left = {".git", ".ci", "runs", "_build", "__pycache__", ".hypothesis", ".ruff_cache", ".pytest_cache"}
    copy = tmp_path_factory.mktemp("docs") / "copy"
    shutil.copytree(ROOT, copy, symlinks=True, ignore=lambda folder, names: [
        name for name in names if name in left or name.startswith(".venv")
        or (Path(folder).name == "docs" and name in ("notebooks", "reference", "project", "extra"))])
    nowhere = {name: "http://127.0.0.1:9" for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")}
    done = subprocess.run([sys.executable, *COMMAND.split(), "docs", "docs/_build/html"], cwd=copy, text=True,
                          capture_output=True, env=os.environ | nowhere)
    assert done.returncode == 0 and "WARNING" not in done.stderr and "ERROR" not in done.stderr, done.stderr[-6000:]
    return copy / "docs" / "_build" / "html"


def test_it_is_what_make_docs_makes():
    make = ["make", f"VENV={Path(sys.executable).parent.parent}", "--no-print-directory", "-n", "docs"]
    said = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert f"{COMMAND} " in said and " docs docs/_build/html\n" in said
    assert f"The site: file://{ROOT}/docs/_build/html/index.html" in said


def test_no_link_is_dead(site):
    pages = {path: Page(path) for path in site.rglob("*.html")}
    assert len(pages) > 100
    for path, page in pages.items():
        for target in page.leads:
            if re.match(r"[a-z]+:", target) or not target.strip("#"):
                continue
            file, _, place = urllib.parse.unquote(target).partition("#")
            found = (path.parent / file).resolve() if file else path
            assert found.exists(), f"{path.name}: {target}"
            if place and found in pages and found.name not in ("genindex.html", "search.html"):
                assert place in pages[found].places, f"{path.name}: {target}"
        for target in page.loads:
            assert target.startswith("data:") or not re.match(r"[a-z]+:|//", target), f"{path.name} loads {target}"
            assert target.startswith("data:") or (path.parent / target.partition("?")[0]).exists(), target


def test_everything_is_in_it(site):
    """Each notebook with its outputs, each guide, and each public function with what its arguments are."""
    root = site.parents[2]
    for path in (root / "nbs").rglob("*.ipynb"):
        assert (site / "notebooks" / path.relative_to(root / "nbs").with_suffix(".html")).exists(), path.name
    for path in (root / "docs" / "guides").glob("*.md"):
        assert (site / "guides" / f"{path.stem}.html").exists()
    assert "data:image" in (site / "notebooks/3_agent/14_clips.html").read_text()
    ppo = (site / "notebooks/3_agent/04_ppo.html").read_text()
    assert "<math" in ppo and "#| export" not in ppo and "_images/" in ppo
    reference = (site / "reference/game.html").read_text()
    assert 'id="envgen_nb.game.episodes.Curriculum.begin"' in reference
    assert "environment steps of the rollout that is over" in reference
    for path in (root / "envgen_nb").rglob("*.py"):
        public = re.search(r"^__all__ = \[(.*?)\]", path.read_text(), re.MULTILINE | re.DOTALL)
        name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        if public and "nbs/" in path.read_text()[:2000]:
            assert any(f"module-{name}" in page.read_text() for page in (site / "reference").glob("*.html")), name


def test_in_a_browser(site, tmp_path):
    """From the disk, without any server: the search finds, and both themes can be read."""
    shots = Path(os.environ.get("ENVGEN_SCREENSHOTS") or tmp_path)
    with chromium() as browser:
        for theme in ("light", "dark"):
            page = browser.new_page(color_scheme=theme, viewport={"width": 1280, "height": 900})
            errors = []
            page.on("pageerror", lambda error, found=errors: found.append(error))
            for name in ("index", "guides/results_worlds", "notebooks/3_agent/04_ppo", "reference/curriculum",
                         "notebooks/6_results/05_figures"):
                page.goto((site / f"{name}.html").as_uri())
                assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1"), name
                page.wait_for_timeout(500)
                page.screenshot(path=shots / f"docs-{Path(name).name}-{theme}.png")
            assert page.locator(".js-plotly-plot .main-svg").count() and not errors, errors
            back = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, re.findall(r"\d+", back)[:3])) > 384) == (theme == "light"), back
        for words, title in (("prioritised", "curricul"), ("own LLM", "questions"), ("continuous", "questions"),
                             ("reproduce paper table", "questions"), ("Weights & Biases", "questions")):
            page.goto((site / "search.html").as_uri() + "?q=" + urllib.parse.quote(words))
            page.wait_for_function("title => [...document.querySelectorAll('#search-results li a')].some("
                                   "link => link.innerText.toLowerCase().includes(title))", arg=title, timeout=60_000)
