"""JupyterLab in a real Chromium, driven as a reader drives it.

A test takes the fixture ``lab`` (see conftest.py)::

    def test_cut_after_five_samples(lab):
        with lab.open("01_eight_samples_two_steps.ipynb") as notebook:
            notebook.restart_and_run_all()
            panel = notebook.panel("5|6")  # a Playwright locator: the first widget that shows it
            panel.get_by_role("button", name="5|6").click()
            expect(panel).to_contain_text("1 to 4")
            assert notebook.errors() == []

One server and one browser serve the whole session; each notebook has a page and a kernel of its
own, which end with the ``with``. The server sees a copy of notebooks/ and helpers/, so nothing a
test does reaches the checkout.
"""

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import nbformat
from playwright.sync_api import Browser, Error, Locator, Page, Playwright, expect

ROOT = Path(__file__).resolve().parents[2]
WIDTH, HEIGHT = 1400, 1000
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
# Asked of the models, because a collapsed cell has no prompt to read.
CELLS = """() => window.jupyterapp.shell.currentWidget.content.widgets
    .map(cell => cell.model).filter(model => model.type === "code")"""
KERNEL = "window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel"
# The notebook calls a kernel idle before it is connected to it, and asks a new one for history and
# debugger. A restart before all that is answered can leave both waiting for each other for ever.
# An answer to a later question, on both channels, means that the earlier ones are answered, too.
CONNECTED = f"() => {KERNEL}?.connectionStatus === 'connected' && {KERNEL}.status === 'idle'"
ALL_ANSWERED = f"""async () => {{
    await {KERNEL}.requestKernelInfo();
    await {KERNEL}.requestDebug({{type: "request", seq: 0, command: "debugInfo"}}).done;
}}"""
WENT_WRONG = (
    '[data-mime-type="application/vnd.jupyter.error"],'
    '[data-mime-type="application/vnd.jupyter.stderr"]'
)
# What JupyterLab itself puts in the console when a kernel restarts under it.
RESTARTING = re.compile(
    "Canceled future for|Could not restore the debugger state|Comm not found for comm id"
)
SETTINGS = {
    # Everything is in the page, whether in view or not.
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "docmanager-extension/plugin": {"autosave": False},
}


class NoBrowser(Exception):
    """No Chromium could be started; says what was tried."""


def launch_chromium(playwright: Playwright) -> Browser:
    """Playwright's own Chromium if installed, else one on PATH, else the system's Chrome or Edge.

    Raises:
        NoBrowser: none of them starts.
    """
    on_path = [{"executable_path": path} for path in map(shutil.which, NAMES) if path]
    # Chromium refuses to sandbox what root runs.
    root = ["--no-sandbox"] if getattr(os, "geteuid", lambda: 1)() == 0 else []
    tried = []
    for where in ({}, *on_path, {"channel": "chrome"}, {"channel": "msedge"}):
        try:
            return playwright.chromium.launch(args=[*FLAGS, *root], **where)
        except Error as error:
            tried.append(f"{where or 'of Playwright'}: {error.message.splitlines()[0]}")
    raise NoBrowser("no Chromium starts\n" + "\n".join(tried))


class Lab:
    """A JupyterLab server on a copy of the lessons, and the browser that looks at it."""

    def __init__(self, browser: Browser, folder: Path, lessons: Path = ROOT):
        """Start the server in ``folder`` (empty), with the notebooks/ and helpers/ of ``lessons``.

        Raises:
            RuntimeError: the server does not answer within a minute; says what it wrote.
        """
        # One context for all pages, so that JupyterLab's scripts are loaded once.
        self.pages = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT})
        self.house = folder / "house"
        for room in ("notebooks", "helpers"):
            ignored = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
            shutil.copytree(lessons / room, self.house / room, ignore=ignored)
        for plugin, settings in SETTINGS.items():
            file = folder / "settings" / "@jupyterlab" / f"{plugin}.jupyterlab-settings"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(settings))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url, self.token = f"http://127.0.0.1:{port}", secrets.token_hex(16)
        self.log = folder / "server.log"
        with self.log.open("w") as log:
            self.server = subprocess.Popen(
                [
                    *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
                    f"--ServerApp.port={port}",
                    "--ServerApp.port_retries=0",
                    f"--ServerApp.root_dir={self.house}",
                    "--ServerApp.terminals_enabled=False",
                    "--LabApp.expose_app_in_browser=True",
                ],
                env=self._environment(folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._wait_until_up()

    def _environment(self, folder: Path) -> dict[str, str]:
        """Ours, but with every folder of Jupyter's in ``folder``, so that no habit of the user's
        and no server of theirs is in the way."""
        folders = {
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
            "IPYTHONDIR": "ipython",
        }
        inherited = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
        places = {name: str(folder / place) for name, place in folders.items()}
        return inherited | places | {"JUPYTER_TOKEN": self.token}

    def _wait_until_up(self, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while self.server.poll() is None and time.monotonic() < end:
            try:
                self.ask("GET", "api/status")
                return
            except URLError:
                time.sleep(0.1)
        self.close()
        raise RuntimeError(f"JupyterLab did not start:\n{self.log.read_text()}")

    def ask(self, method: str, path: str):
        """What the server's REST interface answers."""
        headers = {"Authorization": f"token {self.token}"}
        with urlopen(Request(f"{self.url}/{path}", method=method, headers=headers)) as answer:
            return json.loads(answer.read() or "null")

    def open(self, name: str) -> "Notebook":
        """The notebook ``notebooks/<name>``, in a page of its own, its kernel idle."""
        return Notebook(self, self.pages.new_page(), name)

    def close(self) -> None:
        """Close the pages and end the server, and with it every kernel."""
        self.pages.close()
        if self.server.poll() is None:
            try:
                self.ask("POST", "api/shutdown")
                self.server.wait(20)
            except (URLError, subprocess.TimeoutExpired):
                self.server.kill()
        self.server.wait()


class Notebook:
    """One notebook in one page. Cells and outputs count code cells only, from 1, as prompts do."""

    def __init__(self, lab: Lab, page: Page, name: str):
        self.lab, self.page, self.name = lab, page, name
        self.console: list[str] = []
        page.on("pageerror", lambda error: self._listen(str(error)))
        page.on("console", lambda said: said.type == "error" and self._listen(said.text))
        # Reset drops the layout that the page before left behind.
        page.goto(f"{lab.url}/lab/tree/notebooks/{name}?reset&token={lab.token}")
        self.code_cells = page.locator(".jp-NotebookPanel .jp-CodeCell")
        cells = nbformat.read(lab.house / "notebooks" / name, as_version=4).cells
        self.stored = [cell for cell in cells if cell.cell_type == "code"]
        drawn = page.locator(".jp-NotebookPanel .jp-Cell:not(.jp-mod-placeholder)")
        expect(drawn).to_have_count(len(cells), timeout=60_000)
        self._wait_for_kernel()

    def __enter__(self) -> "Notebook":
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    def close(self) -> None:
        """Close the page and end its kernel."""
        self.page.close()
        for session in self.lab.ask("GET", "api/sessions"):
            if session["path"] == f"notebooks/{self.name}":
                # A kernel that is just restarting refuses; the server's end will be its own.
                with suppress(HTTPError):
                    self.lab.ask("DELETE", f"api/sessions/{session['id']}")

    def _listen(self, said: str) -> None:
        if not RESTARTING.search(said):
            self.console.append(said)

    def _wait_for_kernel(self, seconds: float = 60) -> None:
        self.page.wait_for_function(CONNECTED, timeout=seconds * 1000)
        self.page.evaluate(ALL_ANSWERED)

    def restart_and_run_all(self, seconds: float = 600) -> None:
        """Press ⏩ and Restart; back when every cell has run, or one has raised."""
        # Else the counts of the run before would pass for those of this one.
        self.command("notebook:clear-all-cell-outputs")
        self.page.locator('[data-command="notebook:restart-run-all"]').first.click()
        self.page.locator(".jp-Dialog .jp-mod-accept").click()
        self.page.wait_for_function(
            f"() => {{ const cells = ({CELLS})();"
            " return cells.some(cell => cell.executionCount)"
            " && cells.every(cell => cell.executionState !== 'running'); }",
            timeout=seconds * 1000,
        )
        self._wait_for_kernel(seconds)
        expect(self.page.get_by_text("Loading widget")).to_have_count(0, timeout=seconds * 1000)

    def command(self, name: str) -> None:
        """Run one of JupyterLab's commands, as its palette does."""
        self.page.evaluate("name => window.jupyterapp.commands.execute(name)", name)

    def counts(self) -> list[int | None]:
        """The execution count of every code cell; None where it has not run."""
        return self.page.evaluate(f"() => ({CELLS})().map(cell => cell.executionCount)")

    def output(self, cell: int) -> Locator:
        """What code cell number ``cell`` shows."""
        return self.code_cells.nth(cell - 1).locator(".jp-OutputArea-output")

    def output_text(self, cell: int) -> str:
        return "\n".join(self.output(cell).all_inner_texts())

    @property
    def panels(self) -> Locator:
        """Every output that is a live widget, from the top."""
        return self.page.locator(".jp-OutputArea-output:has(> .jupyter-widgets)")

    def panel(self, text: str) -> Locator:
        """The first live widget that shows ``text``."""
        return self.panels.filter(has_text=text).first

    def errors(self) -> list[str]:
        """Everything in the page that says something went wrong: tracebacks where none is meant,
        stderr, dead widgets, and what the browser's console calls an error."""
        shown = [
            text
            for index, cell in enumerate(self.stored)
            if "raises-exception" not in cell.metadata.get("tags", [])
            for text in self.code_cells.nth(index).locator(WENT_WRONG).all_inner_texts()
        ]
        dead = self.page.locator(".jp-OutputArea-output").get_by_text("Error displaying widget")
        return [*shown, *dead.all_inner_texts(), *self.console]

    def screenshot(self, path: str | Path) -> None:
        """The whole notebook as a PNG, however long."""
        notebook = self.page.locator(".jp-NotebookPanel-notebook")
        end = notebook.locator(".jp-Cell").last.evaluate(
            "(cell) => cell.getBoundingClientRect().bottom"
            " + cell.closest('.jp-WindowedPanel-outer').scrollTop"
        )
        self.page.set_viewport_size({"width": WIDTH, "height": int(end) + 50})
        try:
            notebook.screenshot(path=path)
        finally:
            self.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
