"""The config.json of a model on Hugging Face -> its architecture; pure.

Publishers name the same figure differently; the tuples of names are in the order in which they are
tried. A model that also sees or hears has the figures of its language model in `text_config`.
Llama 4 has names of its own: `interleave_moe_layer_step`, `intermediate_size_mlp` for layers
without experts, `attention_chunk_size` for a window, and one shared expert that no field names.
Qwen3-Next has linear attention in all layers but each `full_attention_interval`-th.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inferno_operator.runtime.files import read_text
from inferno_optimizer.calibration.architecture import (
    Architecture,
    LatentAttention,
    LinearAttention,
)
from inferno_optimizer.errors import InputError, UnsupportedError

EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts")
ACTIVE_EXPERTS = ("num_experts_per_tok", "experts_per_token", "num_experts_per_token")
EXPERT_WIDTH = ("moe_intermediate_size", "intermediate_size")
DENSE_WIDTH = ("intermediate_size_mlp", "intermediate_size")
EXPERT_STEP = ("decoder_sparse_step", "interleave_moe_layer_step")
WINDOW = ("sliding_window", "attention_chunk_size")
WINDOWED, WHOLE = ("sliding_attention", "chunked_attention"), "full_attention"
LINEAR = "linear_attention"

# One of so many layers of Llama 4 attends to all tokens, unless its config says otherwise.
WITHOUT_POSITIONS = 4

# Fields of models with layers that are not attention, such as Kimi Linear, Jamba.
NO_ATTENTION = ("linear_attn_config", "hybrid_override_pattern", "mamba_d_state", "ssm_cfg")

# Precision of weights by the method in `quantization_config`.
QUANTIZED = {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "mxfp4", "awq": "int4", "gptq": "int4"}


def read_config(path: str) -> Mapping[str, Any]:
    """Read a config.json.

    Raises InputError if it cannot be read, or is no JSON object.
    """
    text = read_text(path)
    try:
        config = json.loads(text)
    except ValueError as error:
        raise InputError(f"{path}: not JSON: {error}") from error
    if not isinstance(config, dict):
        raise InputError(f"{path}: not the config.json of a model: no JSON object")
    return config


def read_architecture(config: Mapping[str, Any], origin: str) -> Architecture:
    """What the model is made of.

    Raises InputError if a field is missing, or is no whole number above 0; UnsupportedError if
    the model has layers that are not attention.
    """
    return _Figures(config.get("text_config") or config, origin).architecture()


def find_stored_precision(config: Mapping[str, Any]) -> str:
    """Precision of the weights as they are published: bf16, fp8, int4 or mxfp4."""
    method = (config.get("quantization_config") or {}).get("quant_method", "")
    return QUANTIZED.get(method, "bf16")


@dataclass(frozen=True, slots=True)
class _Figures:
    """Figures of a model, and the file that messages name."""

    config: Mapping[str, Any]
    origin: str

    def architecture(self) -> Architecture:
        self.check_layers()
        layers, hidden = self.number("num_hidden_layers"), self.number("hidden_size")
        heads = self.number("num_attention_heads")
        experts = self.number(*EXPERTS, default=0)
        dense = self.dense_layers(layers) if experts else layers
        width = self.number(*EXPERT_WIDTH) if experts else 0
        windowed, window = self.windows(layers)
        return Architecture(
            layers,
            hidden,
            self.number("vocab_size"),
            bool(self.config.get("tie_word_embeddings")),
            heads,
            self.number("num_key_value_heads", default=heads),
            self.number("head_dim", default=hidden // heads),
            self.latent(),
            windowed,
            window,
            dense,
            self.number(*DENSE_WIDTH) if dense else 0,
            experts,
            self.number(*ACTIVE_EXPERTS) if experts else 0,
            width,
            self.shared_width(width),
            self.linear(layers),
        )

    def number(self, *names: str, default: int | None = None) -> int:
        """The first of the fields that is there."""
        for name in names:
            if (value := self.config.get(name)) is not None:
                if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                    raise InputError(f"{self.origin}: {name}: {value!r} is no whole number")
                if value > 0 or default is not None:
                    return value
                raise InputError(f"{self.origin}: {name}: must be above 0")
        if default is None:
            raise InputError(f"{self.origin}: {' or '.join(names)}: missing")
        return default

    def latent(self) -> LatentAttention | None:
        """Latent attention, if the model has it."""
        if not self.config.get("kv_lora_rank"):
            return None
        return LatentAttention(
            self.number("q_lora_rank", default=0),
            self.number("kv_lora_rank"),
            self.number("qk_nope_head_dim"),
            self.number("qk_rope_head_dim"),
            self.number("v_head_dim"),
        )

    def linear(self, layers: int) -> LinearAttention | None:
        """Linear attention, if the model has it."""
        if not self.config.get("linear_num_key_heads"):
            return None
        kinds = self.listed("layer_types")
        whole = kinds.count(WHOLE) or layers // self.number("full_attention_interval")
        return LinearAttention(
            layers - whole,
            self.number("linear_num_key_heads"),
            self.number("linear_key_head_dim"),
            self.number("linear_num_value_heads"),
            self.number("linear_value_head_dim"),
            self.number("linear_conv_kernel_dim"),
            # Engines keep the state in the precision of the weights, unless the config says it.
            4 if self.config.get("mamba_ssm_dtype") == "float32" else 2,
        )

    def dense_layers(self, layers: int) -> int:
        """Layers without experts, of a model that has some."""
        each = self.number(*EXPERT_STEP, default=1)
        first = self.number("first_k_dense_replace", default=len(self.listed("mlp_only_layers")))
        return first + (layers - first) * (each - 1) // each

    def shared_width(self, width: int) -> int:
        """Inner width of what every token passes beside its experts."""
        is_llama4 = "interleave_moe_layer_step" in self.config
        shared = self.number("n_shared_experts", "num_shared_experts", default=int(is_llama4))
        return self.number("shared_expert_intermediate_size", default=shared * width)

    def windows(self, layers: int) -> tuple[int, int]:
        """How many layers keep the last tokens only, and how many tokens."""
        kinds = self.listed("layer_types")
        known = {*WINDOWED, WHOLE, *((LINEAR,) if self.config.get("linear_num_key_heads") else ())}
        if strange := sorted(set(kinds) - known):
            raise UnsupportedError(
                f"{self.origin}: layer_types: {strange[0]!r} is not attention to all or to the last"
                " tokens; such a model has to be measured"
            )
        window = self.number(*WINDOW, default=0)
        if not window or self.config.get("use_sliding_window") is False:
            return 0, 0
        if kinds:
            return sum(map(kinds.count, WINDOWED)), window
        chunks = WITHOUT_POSITIONS if "attention_chunk_size" in self.config else 0
        pattern = self.number("sliding_window_pattern", "nope_layer_interval", default=chunks)
        return layers - (layers // pattern if pattern else 0), window

    def check_layers(self) -> None:
        """Refuse a model whose fields tell of layers that are not attention."""
        unsupported = [name for name in NO_ATTENTION if self.config.get(name)]
        if 0 in self.listed("attn_type_list"):  # MiniMax: 1 is attention to all
            unsupported.append("attn_type_list")
        if unsupported:
            raise UnsupportedError(
                f"{self.origin}: {unsupported[0]}: the model has layers that are not attention;"
                " such a model has to be measured"
            )

    def listed(self, name: str) -> list[Any]:
        """A list; none where it is absent."""
        return list(self.config.get(name) or ())
