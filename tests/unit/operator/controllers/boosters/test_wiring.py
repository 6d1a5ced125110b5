"""When the controller runs, and when it may write."""

from dataclasses import replace

import pytest

from inferno_operator.resources.dialects import DIALECTS, KTHENA, Release
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
    with pytest.raises(InputError, match="INFERNO_MODEL_BOOSTER: must be one of off, kthena"):
        Settings.from_environment({"INFERNO_MODEL_BOOSTER": "other"})


def test_the_release_is_asked_for_by_name() -> None:
    environment = {"INFERNO_MODEL_BOOSTER": "kthena", "INFERNO_MODEL_BOOSTER_RELEASE": "v0.3"}

    dialect = Settings.from_environment(environment).model_booster

    assert dialect is not None
    assert dialect.installed == Release.V0_3
    assert replace(dialect, installed=None) == KTHENA


@pytest.mark.parametrize(
    ("dialect", "release", "problem"),
    [
        ("kthena", "v9", "must be one of v0.1, v0.2, v0.3, v0.4, v1.0, later, not 'v9'"),
        ("matrixinfer", "v0.3", "has no effect without INFERNO_MODEL_BOOSTER=kthena"),
        ("off", "v0.3", "has no effect without INFERNO_MODEL_BOOSTER=kthena"),
    ],
)
def test_a_release_that_is_unknown_or_of_another_dialect_is_refused(
    dialect: str, release: str, problem: str
) -> None:
    environment = {"INFERNO_MODEL_BOOSTER": dialect, "INFERNO_MODEL_BOOSTER_RELEASE": release}

    with pytest.raises(InputError, match=f"INFERNO_MODEL_BOOSTER_RELEASE: {problem}"):
        Settings.from_environment(environment)
