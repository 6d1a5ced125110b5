"""One browser for all tests of a module."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import browser_of_tests


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium; while it runs there is an event loop, which tests of other modules have not."""
    with browser_of_tests() as started:
        yield started
