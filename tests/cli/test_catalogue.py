"""`inferno catalogue`: what others have published, with its source."""

import json
from pathlib import Path

import pytest
import yaml

from inferno_operator.cli.offline.catalogue import read_catalogue
from tests.cli.program import inferno

MODELS = sorted({figures.model for figures in read_catalogue().figures})


def test_every_figure_has_a_source_with_its_date() -> None:
    catalogue = read_catalogue()

    assert {figures.source for figures in catalogue.figures} == catalogue.sources.keys()
    assert all(source.date and source.url for source in catalogue.sources.values())


def test_the_list_has_every_model_and_says_that_it_is_a_start() -> None:
    printed = inferno("catalogue", "list").stdout.decode()

    assert all(model in printed for model in MODELS)
    assert "a start: calibrate your own" in printed


def test_a_model_is_shown_with_what_is_known_of_its_figures() -> None:
    printed = inferno("catalogue", "show", "llama_13b").stdout.decode()

    assert "A100             1  20.13  0.87     32        512  sample-data" in printed
    assert "scaled by the bandwidth, not measured" in printed


@pytest.mark.parametrize("model", MODELS)
def test_what_is_shown_as_yaml_can_be_planned_with(model: str, tmp_path: Path) -> None:
    file = tmp_path / "model.yaml"
    file.write_bytes(inferno("catalogue", "show", model, "-o", "yaml").stdout)

    planned = inferno("optimize", file, "-o", "json")

    assert yaml.safe_load(file.read_text())["spec"]["name"] == model
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["allocations"] == {}


def test_an_unknown_model_is_refused_with_similar_names() -> None:
    printed = inferno("catalogue", "show", "llama_13")

    assert printed.returncode == 2
    assert printed.stderr.decode().startswith(
        "inferno: the catalogue has no model 'llama_13'; did you mean llama_13b"
    )
