"""When the controller runs, and when it may write."""

import pytest

from inferno_operator.resources.dialects import DIALECTS
from inferno_operator.settings import Settings
from inferno_optimizer.errors import InputError


@pytest.mark.parametrize("value", [None, "", "off"])
def test_the_controller_is_off_unless_asked_for(value: str | None) -> None:
    environment = {} if value is None else {"INFERNO_MODEL_BOOSTER": value}

    assert Settings.from_environment(environment).model_booster is None


@pytest.mark.parametrize("name", DIALECTS)
def test_a_dialect_is_asked_for_by_name(name: str) -> None:
    settings = Settings.from_environment({"INFERNO_MODEL_BOOSTER": name})

    assert settings.model_booster == DIALECTS[name]


def test_an_unknown_dialect_is_named() -> None:
    with pytest.raises(InputError, match="INFERNO_MODEL_BOOSTER: 'other' is none of off, kthena"):
        Settings.from_environment({"INFERNO_MODEL_BOOSTER": "other"})
