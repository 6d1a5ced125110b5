"""What messages suggest in place of an unknown name."""

import pytest

from inferno_optimizer.suggestions import alternatives, nearest


@pytest.mark.parametrize("name", ["vllm", "VLM", "vlm"])
def test_a_name_that_differs_also_in_its_case_is_suggested(name: str) -> None:
    assert nearest(name, ["SGLang", "vLLM"]) == "; did you mean vLLM?"


def test_of_names_that_differ_in_their_case_only_the_first_is_suggested() -> None:
    assert nearest("a1000", ["A100", "a100"]) == "; did you mean A100?"


def test_the_nearest_of_several_names_is_suggested_where_one_is_asked_for() -> None:
    known = ["INFERNO_NAMESPACE", "INFERNO_NAME"]

    assert nearest("INFERNO_NAMESPACES", known, most=1) == "; did you mean INFERNO_NAMESPACE?"


def test_known_names_are_listed_where_none_is_near() -> None:
    assert alternatives("queue", ["SGLang", "vLLM"]) == " (known: SGLang, vLLM)"
