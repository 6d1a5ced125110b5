"""The catalogue of sources, and PromQL in which no label can do harm."""

import re
from pathlib import Path

import pytest

from inferno_operator.engines.catalogue import (
    catalogue_with,
    find_source,
    read_built_in_sources,
    read_sources,
)
from inferno_operator.engines.series_groups import SeriesGroup, label_names
from inferno_optimizer.errors import InputError

VLLM = read_built_in_sources()["vLLM"]


PAGE = Path(__file__).parents[4] / "docs/guides/sources.md"


def test_the_catalogue_has_every_source_of_the_docs() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("| `source` |")[2].partition("\n\n")[0]
    first = (line.split("|")[1] for line in table.splitlines()[1:])

    assert {*read_built_in_sources(), "Custom"} == set(re.findall("`(.+?)`", "".join(first)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[", "mine: not YAML"),
        ("- a", "mine: must be an object"),
        ("A: {}", "mine: A.heartbeat"),
        ("A: {heartbeat: [x], arrivals: [[{rate: [a], growth: [b]}]]}", "give rate or growth"),
        ("A: {heartbeat: ['x{'], arrivals: [[{rate: [a]}]]}", "mine: A.heartbeat.0"),
        ("A: {heartbeat: [x], arrivals: [[{rate: [a]}]], means: {itl: [b]}}", "mine: A.means"),
    ],
)
def test_a_catalogue_with_a_mistake_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(InputError) as raised:
        read_sources(text, "mine")

    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_adds_sources_and_replaces_those_of_the_same_name(tmp_path: Path) -> None:
    file = tmp_path / "sources.yaml"
    file.write_text(
        "{Mine: {heartbeat: [a], arrivals: [[{rate: [b]}]]}, "
        "vLLM: {heartbeat: [c], arrivals: [[{rate: [d]}]]}}"
    )

    found = catalogue_with(file)

    assert set(found) == {*read_built_in_sources(), "Mine"}
    assert found["vLLM"].heartbeat == ("c",)


def test_a_file_of_sources_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sources.yaml").write_bytes(b"{}\n\xff")

    with pytest.raises(InputError, match=r"sources\.yaml:2: not UTF-8 text \(byte 4\)"):
        catalogue_with(tmp_path / "sources.yaml")


def test_an_unknown_source_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match=r"'vllm' is unknown; did you mean vLLM\?"):
        find_source(read_built_in_sources(), "vllm")


@pytest.mark.parametrize("name", ["a-b", "1a", "", "__name__", 'a"}', "inferno_part"])
def test_a_name_that_is_not_one_of_a_label_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"spec\.measure\.labels"):
        label_names([name])


@pytest.mark.parametrize("value", ['"', "\\", '"} or up{a="', "a\nb", "ü", "a|b", ".*"])
def test_values_of_labels_are_quoted(value: str) -> None:
    alone = SeriesGroup("vLLM", VLLM, ("m",), ((value,),))
    beside = SeriesGroup("vLLM", VLLM, ("m",), ((value,), ("other",)))

    for group in (alone, beside):
        literal = re.fullmatch(r'm=~?"((?:[^"\\\n]|\\.)*)"', group.selector)
        assert literal is not None, group.selector


def test_several_values_are_matched_literally_and_many_are_all_selected() -> None:
    few = SeriesGroup("vLLM", VLLM, ("m",), (("a.b",), ("c|d",)))
    many = SeriesGroup("vLLM", VLLM, ("m",), tuple((str(n),) for n in range(51)))

    assert (few.selector, many.selector) == (r'm=~"a\\.b|c\\|d"', 'm!=""')
