"""The picture of prefill and decode apart."""

import pytest

from tests.apart import FILE, picture


@pytest.mark.extended
def test_the_picture_shows_what_the_sample_costs_now() -> None:
    assert FILE.read_text(encoding="utf-8") == picture()
