"""Estimates of the catalogue against published measurements, as the page shows them."""

import re
from dataclasses import astuple

import numpy as np
import pytest

from inferno_operator.cli.catalogue import read_catalogue, read_hardware
from inferno_optimizer.calibration.roofline import EFFICIENCY
from tests.published.judge import fit, judged, judged_recent, known_errors
from tests.published.measured import DATA, points
from tests.published.page import PAGE, page, tabulate_times
from tests.reference.markdown import percent
from tests.reference.shown import ROOT

RENEW = "make it anew: python -m tests.published"


@pytest.mark.extended
def test_the_page_is_as_the_measurements_have_it() -> None:
    assert (ROOT / PAGE).read_text(encoding="utf-8") == page(), RENEW


def test_the_efficiency_is_the_one_that_fits_best() -> None:
    assert astuple(fit(points())) == pytest.approx(astuple(EFFICIENCY), rel=0.01), RENEW


def test_the_command_says_what_estimates_of_other_models_are_off_by() -> None:
    assert list(read_hardware().errors) == known_errors(), RENEW


def test_half_of_the_estimates_are_within_a_quarter() -> None:
    assert np.median([one.off for one in judged()]) < 0.25


def test_cards_that_count_as_measured_are_those_of_the_measurements() -> None:
    measured = {card.name for card in read_hardware().accelerators if card.measured}

    assert measured == {point.entry.accelerator for point in points()}


def test_every_time_is_beside_what_size_and_aiconfigurator_say_of_it() -> None:
    table = tabulate_times()

    assert len(table.rows) == len(points())
    assert len({one.entry.model for one in judged_recent()}) == 8
    assert all(one.aiconfigurator_errors.size for one in judged_recent())


def test_every_source_of_a_measurement_is_explained() -> None:
    explained = (DATA / "README.md").read_text(encoding="utf-8")

    for point in points():
        assert f"| `{point.entry.source}` |" in explained


def test_the_sample_data_are_left_out_because_nobody_measured_them() -> None:
    """Every model is slower on an A100 than on an H100 by the same factor, to three digits."""
    figures = [f for f in read_catalogue().figures if f.source == "sample-data"]
    alphas = [{data.acc: data.alpha for data in f.data if data.alpha} for f in figures]
    ratios = [found["A100"] / found["H100"] for found in alphas if {"A100", "H100"} <= found.keys()]

    assert len(ratios) > 5
    assert max(ratios) - min(ratios) < 0.002
    assert "sample-data" not in {point.entry.source for point in points()}


@pytest.mark.parametrize(
    ("share", "told"), [(-0.004, "0%"), (0.004, "0%"), (-0.006, "-1%"), (0.2, "+20%"), (1, "+100%")]
)
def test_an_error_that_rounds_to_nothing_has_no_sign(share: float, told: str) -> None:
    assert percent(share) == told


@pytest.mark.parametrize("name", ["how-good-are-estimates", "how-far-is-it-off", "benchmarks"])
def test_pages_of_measurements_have_no_signed_zero_and_no_exponent(name: str) -> None:
    text = (ROOT / f"docs/{name}.md").read_text(encoding="utf-8")

    assert not re.search(r"[-+]0 ?%|\d\.?\d*e-\d", text)
