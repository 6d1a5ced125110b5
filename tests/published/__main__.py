"""Print what belongs into `roofline.py` and `hardware.yaml`, and write the page."""

from dataclasses import astuple
from pathlib import Path

from tests.published.judge import fit, known_errors
from tests.published.measured import points
from tests.published.page import PAGE, page

if __name__ == "__main__":
    print("EFFICIENCY:", ", ".join(f"{value:.3g}" for value in astuple(fit(points()))))
    for error in known_errors():
        print(f"- {error.to_json()}")
    (Path(__file__).parents[2] / PAGE).write_text(page(), encoding="utf-8")
