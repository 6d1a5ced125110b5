"""One browser for all tests of a module."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.chromium import INSTALL, OFFLINE, chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium; while it runs there is an event loop, which tests of other modules have not."""
    program = chromium()
    if program is None:
        pytest.skip(INSTALL)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=list(OFFLINE))
        yield started
        started.close()
