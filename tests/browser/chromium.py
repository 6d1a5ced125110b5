"""The Chromium of the distribution, and how it is started."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
OFFLINE = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
"""Options with which Chromium asks no other host for anything."""

INSTALL = "no Chromium on PATH; install it: apt-get install chromium"


def chromium() -> str | None:
    """The program, if there is one."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


@contextmanager
def started(program: str) -> Iterator[Browser]:
    """Chromium; while it runs there is an event loop."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(OFFLINE))
        yield browser
        browser.close()


@contextmanager
def browser_of_tests() -> Iterator[Browser]:
    """Chromium; tests are skipped where there is none."""
    program = chromium()
    if program is None:
        pytest.skip(INSTALL)
    with started(program) as browser:
        yield browser
