import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.lab import Lab, NoBrowser, launch_chromium

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("browser")
    # Last: the slowest, and Playwright's event loop must not be there when nbval starts its own.
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        try:
            chromium = launch_chromium(playwright)
        except NoBrowser as problem:
            if os.environ.get("REQUIRE_BROWSER") == "1":
                pytest.fail(str(problem), pytrace=False)
            pytest.skip(str(problem))
        with chromium:
            yield chromium


@pytest.fixture(scope="session")
def lab(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """JupyterLab in a browser, on a copy of the lessons; see lab.py for what it can do."""
    lab = Lab(browser, tmp_path_factory.mktemp("lab"))
    yield lab
    lab.close()
