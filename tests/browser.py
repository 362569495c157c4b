"""A real JupyterLab and a real browser for tests: started, driven, watched for errors, and taken down again."""
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import Locator, Page, sync_playwright

ROOT = Path(__file__).parent.parent
TOKEN = "for-the-test"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]
PATIENCE = 120_000                            # ms that a page is waited for: several tests share slow cores
WIDTHS = {"wide": 1400, "narrow": 760}
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}

# What JupyterLab itself says and no notebook can help; everything else in the console or the log fails the test.
CONSOLE_NOISE: list[str] = []
LOG_NOISE: list[str] = []
# The server tells so of a kernel that speaks while the page closes.
CLOSED = re.compile(r"Task exception was never retrieved\nfuture: .*exception=WebSocketClosedError\(\)>\n"
                    r"(?:.*\n)*?tornado\.websocket\.WebSocketClosedError\n")


def write_notebook(path: Path, *cells: str) -> Path:
    """A notebook with these code cells."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, path)
    return path


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Lab:
    """JupyterLab on a folder, on a free port, with settings of its own; it asks nothing of the network."""

    def __init__(self, folder: Path, home: Path):
        self.folder, self.home, self.url = folder, home, f"http://127.0.0.1:{free_port()}"
        home.mkdir(parents=True)
        self.log_path = home / "jupyter.log"
        places = {name: str(home / name.lower()) for name in (
            "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_SETTINGS_DIR",
            "JUPYTERLAB_WORKSPACES_DIR", "IPYTHONDIR")}
        quiet = home / "jupyterlab_settings_dir" / "@jupyterlab" / "apputils-extension"
        quiet.mkdir(parents=True)
        (quiet / "notification.jupyterlab-settings").write_text('{"fetchNews": "false", "checkForUpdates": false}')
        command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1",
                   f"--port={self.url.rpartition(':')[2]}", "--port-retries=0", f"--IdentityProvider.token={TOKEN}",
                   f"--ServerApp.root_dir={folder}", "--LabApp.expose_app_in_browser=True",
                   "--LabApp.extension_manager=readonly",
                   "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        packages = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, cwd=folder,
                                            env=os.environ | places | {"PYTHONPATH": packages, "PATH": path})

    def ask(self, what: str, method: str = "GET") -> Any:
        """Something from the server's API."""
        query = urllib.request.Request(f"{self.url}/{what}", method=method, headers={"Authorization": f"token {TOKEN}"})
        with urllib.request.urlopen(query, timeout=30) as response:
            return json.loads(response.read() or b"null")

    def wait(self, seconds: float = 120) -> None:
        """Until it answers."""
        until = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError):
                return self.ask("api/status")
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"JupyterLab did not start:\n{self.log_path.read_text()}")
            time.sleep(0.2)

    def complaints(self) -> list[str]:
        """What the server and its kernels said that should not have been said."""
        lines = CLOSED.sub("", self.log_path.read_text()).splitlines()
        wrong = [line for line in lines if re.search(r"^\[[EC] |Traceback|^\w*(Error|Exception)\b", line)]
        return [line for line in wrong if not any(re.search(noise, line) for noise in LOG_NOISE)]

    def end_kernels(self) -> None:
        """What the notebooks that were opened have started."""
        for session in self.ask("api/sessions"):
            self.ask(f"api/sessions/{session['id']}", "DELETE")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.end_kernels()
            self.ask("api/shutdown", "POST")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Browser:
    """One page of a browser on a JupyterLab, with what it complained about, pictures of it, and figures."""

    def __init__(self, lab: Lab, page: Page, shots: Path, pictures: bool):
        self.lab, self.page, self.shots, self.pictures = lab, page, shots, pictures
        self.errors: list[str] = []
        shots.mkdir(parents=True, exist_ok=True)
        page.on("console", lambda message: self._heard(message.type, f"{message.text} ({message.location.get('url')})"))
        page.on("pageerror", lambda error: self._heard("error", f"{error}"))

    def _heard(self, kind: str, text: str) -> None:
        if kind == "error" and not any(re.search(noise, text) for noise in CONSOLE_NOISE):
            self.errors.append(text)

    def command(self, name: str, **arguments: Any) -> None:
        """One of JupyterLab's own commands, as from its palette."""
        self.page.evaluate("([name, arguments]) => window.jupyterapp.commands.execute(name, arguments).then(() => {})",
                           [name, arguments])

    def open(self, notebook: str) -> None:
        """A notebook in JupyterLab, its kernel ready."""
        self.page.goto(f"{self.lab.url}/lab/tree/{notebook}?reset&token={TOKEN}")
        self.page.wait_for_selector(".jp-Notebook .jp-Cell")
        self.page.wait_for_function(
            "() => window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'",
            timeout=PATIENCE)
        if self.page.locator(".jp-SideBar .lm-mod-current").count():
            self.command("application:toggle-left-area")                  # the file browser takes room

    def run_all(self) -> None:
        """Run all cells and go on at once."""
        self.page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }")

    def timed(self, name: str, since: float) -> None:
        """Record how long something took, in seconds."""
        self.note(name, time.perf_counter() - since)

    def note(self, name: str, figure: float) -> None:
        """Record a figure."""
        path = self.shots / "figures.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(known | {name: round(figure, 3)}, indent=1) + "\n")

    def shot(self, name: str, look_at: Locator | None = None, height: int = 1500) -> None:
        """Pictures of a stage: light and dark, wide and narrow; none in the short form of the tests."""
        if not self.pictures:
            return
        for theme, title in THEMES.items():
            self._theme(title)
            for size, width in WIDTHS.items():
                self.page.set_viewport_size({"width": width, "height": height})
                if look_at is not None:
                    look_at.scroll_into_view_if_needed()
                self.page.wait_for_timeout(400)                           # for the layout to settle
                self.page.screenshot(path=self.shots / f"{name}-{theme}-{size}.png")
        self.page.set_viewport_size({"width": WIDTHS["wide"], "height": height})
        self._theme(THEMES["light"])

    def _theme(self, title: str) -> None:
        self.command("apputils:change-theme", theme=title)
        self.page.wait_for_selector(f"body[data-jp-theme-name='{title}']", state="attached")
        # JupyterLab takes its splash screen away 200 ms later; a second one until then is an error of its own.
        self.page.wait_for_selector("#jupyterlab-splash", state="detached")


@contextlib.contextmanager
def jupyterlab(folder: Path, home: Path) -> Iterator[Lab]:
    """JupyterLab on a folder of notebooks."""
    folder.mkdir(parents=True, exist_ok=True)
    lab = Lab(folder, home)
    try:
        lab.wait()
        yield lab
    finally:
        lab.close()


@contextlib.contextmanager
def chromium() -> Iterator[Chromium]:
    """Chromium without a window: that of the system, else Playwright's own."""
    system = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=system, args=FLAGS)
        yield found
        found.close()


@contextlib.contextmanager
def browser(lab: Lab, pictures: bool) -> Iterator[Browser]:
    """A browser before it; in the end the kernels that it had started are ended.

    Pictures and figures are kept in the folder that ENVGEN_SCREENSHOTS names, else beside the folder of settings.
    """
    shots = Path(os.environ.get("ENVGEN_SCREENSHOTS") or lab.home.parent / "screenshots").resolve()
    print(f"screenshots: {shots}")
    with chromium() as found:
        page = found.new_page(viewport={"width": WIDTHS["wide"], "height": 1500})
        page.set_default_timeout(PATIENCE)
        yield Browser(lab, page, shots, pictures)
    lab.end_kernels()
