"""The windows of `spec.measure`; those that are refused are in `tests/data/crds/refused.yaml`."""

from inferno_operator.resources import Measure


def test_windows_may_be_equal_and_have_defaults() -> None:
    spec = {"source": "vLLM", "labels": {"model_name": "m"}, "windows": {"longSeconds": 60}}

    chosen = Measure.model_validate(spec).windows

    assert chosen is not None
    assert (chosen.short_seconds, chosen.long_seconds) == (60, 60)
