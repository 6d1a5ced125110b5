"""Write the generated parts of the documentation, and what commands without a cluster print."""

from pathlib import Path

from tests.reference.pages import PARTS, page, renewed
from tests.reference.shown import find_folder, pages, run_in, shown, with_output


def main() -> None:
    """Renew every page that is not as the code has it."""
    for part in PARTS:
        _write(page(part), renewed(part))
    for place in pages():
        _write(place, _printed_anew(place))


def _printed_anew(place: Path) -> str:
    text = place.read_text(encoding="utf-8")
    for command in shown(place):
        if command.offline:
            printed = run_in(find_folder(place), command.text).stdout
            if not command.fits(printed):
                text = with_output(text, command, printed)
    return text


def _write(place: Path, text: str) -> None:
    if text != place.read_text(encoding="utf-8"):
        place.write_text(text, encoding="utf-8")
        print(f"wrote {place}")


if __name__ == "__main__":
    main()
