"""Pictures of the console in the documentation are small, and made by a command."""

from tests.console_screens import DOCS, SHOWN
from tests.controlplane.processes import ROOT

EACH, TOGETHER = 100 * 1024, 1024 * 1024
"""Most bytes of a picture, and of all."""


def test_pictures_of_pages_are_small_and_shown() -> None:
    guide = (ROOT / "docs" / "guides" / "console.md").read_text()
    sizes = {file.name: file.stat().st_size for file in DOCS.glob("*.png")}

    assert sizes.keys() == set(SHOWN.values())
    assert all(f"(../pictures/{name})" in guide for name in sizes)
    assert max(sizes.values()) < EACH
    assert sum(sizes.values()) < TOGETHER
