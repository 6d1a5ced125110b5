"""config.json of models: parameters that publishers state, and mistakes in a line."""

from collections.abc import Mapping
from typing import Any

import pytest

from inferno_operator.cli.catalogue import KnownModel, read_models
from inferno_operator.cli.offline.model_config import find_stored_precision, read_architecture
from inferno_optimizer.errors import InputError, UnsupportedError

MODELS = read_models().models
CONFIG: Mapping[str, Any] = MODELS[0].config

COARSELY_STATED = {80, 106, 109, 355, 1000}
"""Qwen3-Next, GLM-4.5-Air, Llama-4-Scout, GLM-4.6, Kimi-K2: their model cards."""


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_the_parameters_are_those_that_the_publisher_states(model: KnownModel) -> None:
    stated, of_a_token = model.parameters
    found = read_architecture(model.config, model.name)
    looked_up = 0 if found.tied else found.embedding  # some count the input embedding, some do not

    # Publishers of 2025 state thousand millions, some with a vision encoder or a draft layer, or
    # those of a token without any embedding.
    is_coarse = stated in COARSELY_STATED
    rounding, of_active = (0.03, 0.07) if is_coarse else (0.005, 0.05)
    assert found.parameters / 1e9 == pytest.approx(stated, rel=rounding)
    assert any(
        n / 1e9 == pytest.approx(of_a_token, rel=of_active, abs=0.5 if is_coarse else None)
        for n in (found.active, found.active + looked_up, found.active - found.embedding)
    )


@pytest.mark.parametrize(
    ("name", "kib"), [("Llama-3.1-8B", 128.0), ("DeepSeek-V3", 68.625), ("gpt-oss-120b", 72.0)]
)
def test_the_cache_of_a_token_is_as_published(name: str, kib: float) -> None:
    """DeepSeek-V3: 70.272 kB a token, arXiv:2505.09343, table 1."""
    model = read_architecture(read_models().model(name).config, name)

    assert model.layers * model.cached(1) * 2 / 1024 == kib


LLAMA_4: Mapping[str, Any] = {
    "hidden_size": 5120,
    "num_hidden_layers": 48,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 8192,
    "intermediate_size_mlp": 16384,
    "num_experts_per_tok": 1,
    "attention_chunk_size": 8192,
    "vocab_size": 202048,
}
"""What both models have: their config.json on Hugging Face."""


@pytest.mark.parametrize(("experts", "step", "billions"), [(16, 1, 109), (128, 2, 400)])
def test_llama_4_has_the_parameters_that_its_publisher_states(
    experts: int, step: int, billions: float
) -> None:
    """Scout and Maverick, both with 17 billion for a token: their model card."""
    given = {**LLAMA_4, "num_local_experts": experts, "interleave_moe_layer_step": step}

    found = read_architecture({"text_config": given}, "config.json")

    assert found.parameters / 1e9 == pytest.approx(billions, rel=0.015)
    assert (found.active + found.embedding) / 1e9 == pytest.approx(17, rel=0.02)
    assert (found.windowed_layers, found.window) == (36, 8192)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("linear_attn_config", {"kda_layers": [1]}),
        ("hybrid_override_pattern", "M-M*"),
        ("mamba_d_state", 16),
        ("attn_type_list", [0, 0, 1]),
    ],
)
def test_a_field_of_layers_that_are_no_attention_is_named(field: str, value: object) -> None:
    with pytest.raises(UnsupportedError, match=f"^config.json: {field}: .*to be measured$"):
        read_architecture({**CONFIG, field: value}, "config.json")
    known = read_architecture({**CONFIG, "attn_type_list": [1, 1]}, "config.json")
    assert known == read_architecture(CONFIG, "config.json")


def test_linear_attention_keeps_a_state_of_one_size_and_no_tokens() -> None:
    """vLLM: 32 x 128 x 128 numbers, and the last 3 of 8192 of the convolution, in 2 bytes each."""
    given = read_models().model("Qwen/Qwen3-Next-80B-A3B-Instruct").config
    found = read_architecture(given, "config.json")

    assert (found.layers, found.attention_layers) == (48, 12)
    assert found.attention_layers * found.cached(1) * 2 == 24576
    assert found.linear is not None
    assert found.linear.kept_bytes(1) == 36 * (32 * 128 * 128 + 3 * 8192) * 2
    assert found.linear.kept_bytes(4) == found.linear.kept_bytes(1) / 4


def test_linear_attention_is_read_by_type_too_and_its_state_in_its_precision() -> None:
    given = read_models().model("Qwen3-Next-80B-A3B").config
    kinds = ["linear_attention"] * 3 + ["full_attention"]
    by_type = {n: v for n, v in given.items() if n != "full_attention_interval"}
    by_type |= {"layer_types": kinds * 12, "mamba_ssm_dtype": "float32"}

    found = read_architecture({"text_config": by_type}, "config.json")

    assert found.attention_layers == 12
    assert found.linear is not None
    assert found.linear.state_bytes == 4


def test_linear_attention_without_its_sizes_is_a_mistake() -> None:
    given = {**CONFIG, "linear_num_key_heads": 16, "full_attention_interval": 4}

    with pytest.raises(InputError, match=r"^config.json: linear_key_head_dim: missing$"):
        read_architecture(given, "config.json")


def test_layers_by_type_are_counted_by_type() -> None:
    kinds = ["sliding_attention", "full_attention"] * 16
    model = read_architecture(
        {**CONFIG, "sliding_window": 128, "layer_types": kinds}, "config.json"
    )

    assert (model.windowed_layers, model.window) == (16, 128)


def test_a_window_that_is_switched_off_is_none() -> None:
    given = {**CONFIG, "sliding_window": 4096, "use_sliding_window": False}

    assert read_architecture(given, "config.json").windowed_layers == 0


def test_a_model_that_also_sees_has_its_language_model_inside() -> None:
    assert read_architecture({"text_config": CONFIG}, "c") == read_architecture(CONFIG, "c")


@pytest.mark.parametrize(("method", "precision"), [("fp8", "fp8"), ("awq", "int4"), (None, "bf16")])
def test_the_weights_are_as_they_are_published(method: str | None, precision: str) -> None:
    given = {"quantization_config": {"quant_method": method}} if method else {}

    assert find_stored_precision(given) == precision


@pytest.mark.parametrize("field", ["hidden_size", "num_hidden_layers", "vocab_size"])
def test_a_field_that_is_missing_is_named(field: str) -> None:
    given = {name: value for name, value in CONFIG.items() if name != field}

    with pytest.raises(InputError, match=f"^config.json: {field}: missing$"):
        read_architecture(given, "config.json")


@pytest.mark.parametrize("value", ["4096", 4096.5, True, 0])
def test_a_field_that_is_no_number_is_named(value: object) -> None:
    with pytest.raises(InputError, match=r"config.json: hidden_size: "):
        read_architecture({**CONFIG, "hidden_size": value}, "config.json")


def test_layers_that_are_no_attention_are_refused() -> None:
    given = {**CONFIG, "layer_types": ["linear_attention"] * 32}

    with pytest.raises(UnsupportedError, match="layer_types: 'linear_attention'"):
        read_architecture(given, "config.json")
