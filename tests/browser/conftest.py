"""One browser for all tests of a module."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
OFFLINE = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
"""Options with which Chromium asks no other host for anything."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium; while it runs there is an event loop, which tests of other modules have not."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("no Chromium on PATH; install it: apt-get install chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=list(OFFLINE))
        yield chromium
        chromium.close()
