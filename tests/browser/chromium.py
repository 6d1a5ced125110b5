"""The Chromium of the distribution, and how it is started."""

import shutil

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
