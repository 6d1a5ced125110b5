"""Print what belongs into `roofline.py` and `hardware.yaml`, and write the page.

With `--size`: print every time beside what `inferno size` and AIConfigurator say of it.
"""

import sys
from dataclasses import astuple
from pathlib import Path

from tests.published.judge import fit, known_errors
from tests.published.measured import points
from tests.published.page import PAGE, page, tabulate_times

if __name__ == "__main__":
    if sys.argv[1:] == ["--size"]:
        print(tabulate_times())
    else:
        print("EFFICIENCY:", ", ".join(f"{value:.3g}" for value in astuple(fit(points()))))
        for error in known_errors():
            print(f"- {error.to_json()}")
        (Path(__file__).parents[2] / PAGE).write_text(page(), encoding="utf-8")
