"""How commands and their outputs are found on pages, and what counts as the same output."""

import re
from pathlib import Path

import pytest

from tests.reference.shown import BLOCK, ROOT, Shown, pages, shown, with_output

PAGE = """\
Text.

```console
$ first --option \\
    value   # a remark
one
two
$ second
```

1. A step.

    ```console
    $ third
    said
    ```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def test_commands_and_outputs_are_found_also_in_lists(page: Path) -> None:
    assert [(command.text, command.output) for command in shown(page)] == [
        ("first --option value", "one\ntwo"),
        ("second", ""),
        ("third", "said"),
    ]


@pytest.mark.parametrize(
    ("told", "printed", "same"),
    [
        ("solved in 0.1 s", "solved in 12.3 s\n", True),
        ("NAME  AGE\nx     3s", "NAME  AGE\nx     12m5s", True),
        ("first\n...\nlast", "first\nsecond\nthird\nlast", True),
        ("first\nlast", "first\nsecond\nlast", False),
        ("cost 5.00", "cost 6.00", False),
    ],
)
def test_times_and_what_is_left_out_do_not_count(told: str, printed: str, same: bool) -> None:
    assert Shown(Path("page.md"), "command", told).fits(printed) == same


def test_an_output_is_replaced_where_it_stands(page: Path) -> None:
    first, second, _ = shown(page)

    renewed = with_output(with_output(PAGE, first, "three\n"), second, "four\n")

    assert renewed.splitlines()[3:9] == [
        *("$ first --option \\", "    value   # a remark", "three"),
        *("$ second", "four", "```"),
    ]


def test_a_block_that_begins_with_the_name_of_a_file_shows_that_file() -> None:
    blocks = [block for page in pages() for _, _, block in BLOCK.findall(page.read_text("utf-8"))]
    named = [re.match(r"# ((?:samples|tests)/\S+)\n", block) for block in blocks]
    shown = {found[1]: found.string[found.end() :] for found in named if found}

    assert len(shown) == 3
    for name, text in shown.items():
        assert text in (ROOT / name).read_text("utf-8"), name


def test_pages_read_well_where_nothing_includes_files() -> None:
    assert [page.name for page in pages() if "--8<--" in page.read_text("utf-8")] == []
