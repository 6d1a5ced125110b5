"""Write the page that shows predictions beside measurements: `python -m tests.h100`."""

from pathlib import Path

from tests.h100.page import PAGE, page

if __name__ == "__main__":
    (Path(__file__).parents[2] / PAGE).write_text(page(), encoding="utf-8")
