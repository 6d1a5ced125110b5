"""The size of a language model: its parameters, and what it reads and keeps for each token.

Counts follow from the shapes of the matrices of a decoder: attention with grouped queries [1] or
with a latent cache [2] or with a state instead of a cache [3], and feed-forward layers with three
matrices, dense or as a mixture of experts. Biases and norms are left out: less than a thousandth of
the parameters.

1. J. Ainslie et al., *GQA: Training Generalized Multi-Query Transformer Models from Multi-Head
   Checkpoints*, arXiv:2305.13245, 2023.
2. DeepSeek-AI, *DeepSeek-V2*, arXiv:2405.04434, 2024, section 2.1.
3. S. Yang, J. Kautz, A. Hatamizadeh, *Gated Delta Networks*, arXiv:2412.06464, 2024.
"""

import math
from dataclasses import dataclass

TOKEN_BYTES = 2
"""Bytes of each number that is kept of the last tokens for a convolution."""


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Attention whose cache has one vector for all heads, of `kv_rank` + `rope_dim` numbers.

    `query_rank` is 0 where queries are not compressed. A head multiplies keys of `nope_dim` +
    `rope_dim` numbers, and makes `value_dim`.
    """

    query_rank: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class LinearAttention:
    """Attention that keeps a state of each request, of one size for any number of tokens.

    `layers` of the model have it: `key_heads` keys of `key_dim` numbers, `value_heads` values of
    `value_dim`, and a convolution over the last `kernel` tokens. A number of the state takes
    `state_bytes`.
    """

    layers: int
    key_heads: int
    key_dim: int
    value_heads: int
    value_dim: int
    kernel: int
    state_bytes: int

    def parameters(self, hidden: int) -> int:
        """Parameters of a layer: queries, keys, values, gates, the convolution and the output."""
        values = self.value_heads * self.value_dim
        inputs = hidden * (self._mixed + values + 2 * self.value_heads)
        return inputs + self.kernel * self._mixed + values * hidden

    def kept_bytes(self, cards: int) -> int:
        """Bytes that one card keeps of a request in all layers, when `cards` share the heads."""
        state = self.value_heads * self.key_dim * self.value_dim * self.state_bytes
        tokens = (self.kernel - 1) * self._mixed * TOKEN_BYTES
        return -(-self.layers * (state + tokens) // cards)

    @property
    def _mixed(self) -> int:
        """Numbers of the queries, keys and values of a token."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim


@dataclass(frozen=True, slots=True)
class Architecture:
    """What a model is made of.

    Attributes
    ----------
    layers, hidden, vocabulary
        Number of layers, width of the residual stream, tokens of the vocabulary.
    tied
        Whether input and output embeddings are one matrix.
    heads, kv_heads, head_dim
        Of attention with grouped queries.
    latent
        Latent attention, which replaces it.
    windowed_layers, window
        Layers that keep the last `window` tokens only.
    linear
        Linear attention, which replaces it in some layers.
    dense_layers, dense_width
        Layers with one feed-forward network, and its inner width.
    experts, active_experts, expert_width, shared_width
        Of the other layers: all experts, those of one token, the inner width of each, and that of
        what every token passes.
    """

    layers: int
    hidden: int
    vocabulary: int
    tied: bool
    heads: int
    kv_heads: int
    head_dim: int
    latent: LatentAttention | None = None
    windowed_layers: int = 0
    window: int = 0
    dense_layers: int = 0
    dense_width: int = 0
    experts: int = 0
    active_experts: int = 0
    expert_width: int = 0
    shared_width: int = 0
    linear: LinearAttention | None = None

    @property
    def attention_layers(self) -> int:
        """Layers that keep something of each token."""
        return self.layers - (self.linear.layers if self.linear else 0)

    @property
    def expert_layers(self) -> int:
        """Layers with experts."""
        return self.layers - self.dense_layers

    @property
    def attention(self) -> int:
        """Parameters of the attention of a layer that keeps something of each token."""
        if (latent := self.latent) is None:
            return 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        key, value = latent.nope_dim + latent.rope_dim, latent.value_dim
        queries = self.heads * key
        if latent.query_rank:
            query = latent.query_rank * (self.hidden + queries)
        else:
            query = self.hidden * queries
        down = self.hidden * (latent.kv_rank + latent.rope_dim)
        up = latent.kv_rank * self.heads * (latent.nope_dim + value)
        return query + down + up + self.heads * value * self.hidden

    @property
    def common(self) -> int:
        """Parameters of the layers that every token passes: all but experts and embeddings."""
        routed = self.hidden * (3 * self.shared_width + self.experts)
        dense = 3 * self.hidden * self.dense_width
        attention = self.attention_layers * self.attention
        if self.linear is not None:
            attention += self.linear.layers * self.linear.parameters(self.hidden)
        return attention + self.dense_layers * dense + self.expert_layers * routed

    @property
    def expert(self) -> int:
        """Parameters of one expert of all layers that have experts."""
        return self.expert_layers * 3 * self.hidden * self.expert_width

    @property
    def embedding(self) -> int:
        """Parameters of one embedding: input, or output."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters."""
        embeddings = self.embedding * (1 if self.tied else 2)
        return self.common + self.experts * self.expert + embeddings

    @property
    def active(self) -> int:
        """Parameters that one token is multiplied with: the input embedding is looked up."""
        return self.common + self.active_experts * self.expert + self.embedding

    def experts_met(self, tokens: float) -> float:
        """Mean number of experts of a layer that at least one of some tokens goes to.

        Every token chooses `active_experts` of them at random, independently of the others.
        """
        if not self.experts:
            return 0.0
        missed = math.pow(1.0 - self.active_experts / self.experts, tokens)
        return self.experts * (1.0 - missed)

    def cached(self, cards: int) -> int:
        """Numbers that one card keeps of a token in an attention layer; `cards` share the heads.

        Each card has at least one head of the keys and values; a latent vector is on every card.
        """
        if self.latent is not None:
            return self.latent.kv_rank + self.latent.rope_dim
        return 2 * self.head_dim * -(-self.kv_heads // cards)

    @property
    def attended(self) -> int:
        """Multiplications and additions of attention for each pair of tokens, in all layers."""
        heads = self.attention_layers * self.heads
        if (latent := self.latent) is None:
            return 4 * heads * self.head_dim
        return 2 * heads * (latent.nope_dim + latent.rope_dim + latent.value_dim)
