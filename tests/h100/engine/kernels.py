"""The two functions of the flash-attn package that transformers needs, for where it is absent.

Prompts go through the FlashAttention-2 that PyTorch has; decode steps through a kernel that reads
the paged cache where it is, each request in parts that are computed side by side and then combined
("flash decoding"). Both give what `flash_attn` gives: causal masks end at the last token.
"""
# ruff: noqa: ANN001, ANN202, PLR0913, PLR0917 - as flash-attn has it; Triton takes no types

import torch
import triton
import triton.language as tl

TOKENS_PER_TURN = 64
"""Cached tokens that a program reads at once; a divisor of the size of a block."""

LEAST_ROWS = 16
"""Rows that a matrix product of the GPU has at least."""

MANY, FEW_PARTS, MANY_PARTS = 16, 8, 32
"""Requests from which the GPU is busy with few parts of each; parts of each request."""


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    softmax_scale: float,
    **_: object,
) -> torch.Tensor:
    """Attention of packed requests; q of shape (tokens, heads, size), k and v with fewer heads."""
    lengths = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    found = torch.ops.aten._flash_attention_forward(  # noqa: SLF001 - PyTorch has no other name
        q, k, v, *lengths, 0.0, True, False, scale=softmax_scale
    )
    return found[0]


def flash_attn_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cache_seqlens: torch.Tensor,
    softmax_scale: float,
    block_table: torch.Tensor,
    **_: object,
) -> torch.Tensor:
    """Write the new token of each request into the cache, and attend to all of its tokens.

    q of shape (requests, 1, heads, size); caches (blocks, block size, key heads, size); a length
    below 0 is of no request.
    """
    requests, _, heads, size = q.shape
    block, key_heads = k_cache.shape[1:3]
    group = heads // key_heads
    parts = FEW_PARTS if requests >= MANY else MANY_PARTS
    columns = block_table.shape[1]
    _write[(requests, key_heads)](
        k, v, k_cache, v_cache, block_table, cache_seqlens, columns, key_heads, block, size
    )
    partial = torch.empty((requests, heads, parts, size), dtype=torch.float32, device=q.device)
    weights = torch.empty((requests, heads, parts), dtype=torch.float32, device=q.device)
    _attend[(requests, key_heads, parts)](
        *(q, k_cache, v_cache, block_table, cache_seqlens, partial, weights),
        *(softmax_scale, columns, key_heads, group),
        max(LEAST_ROWS, triton.next_power_of_2(group)),
        *(block, size, parts, TOKENS_PER_TURN),
    )
    result = torch.empty_like(q)
    _combine[(requests, heads)](partial, weights, result, heads, parts, size)
    return result


@triton.jit  # type: ignore[untyped-decorator]
def _write(  # type: ignore[no-untyped-def]
    k,
    v,
    k_cache,
    v_cache,
    table,
    lengths,
    columns,
    key_heads: tl.constexpr,
    block: tl.constexpr,
    size: tl.constexpr,
):
    request, head = tl.program_id(0), tl.program_id(1)
    place = tl.load(lengths + request)
    if place >= 0:
        page = tl.load(table + request * columns + place // block).to(tl.int64)
        lane = tl.arange(0, size)
        old = (request * key_heads + head) * size + lane
        new = ((page * block + place % block) * key_heads + head) * size + lane
        tl.store(k_cache + new, tl.load(k + old))
        tl.store(v_cache + new, tl.load(v + old))


@triton.jit  # type: ignore[untyped-decorator]
def _attend(  # type: ignore[no-untyped-def]
    q,
    k_cache,
    v_cache,
    table,
    lengths,
    partial,
    weights,
    scale,
    columns,
    key_heads: tl.constexpr,
    group: tl.constexpr,
    rows: tl.constexpr,
    block: tl.constexpr,
    size: tl.constexpr,
    parts: tl.constexpr,
    turn: tl.constexpr,
):
    request, head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(lengths + request) + 1
    share = tl.cdiv(tl.cdiv(length, parts), turn) * turn
    first = part * share
    last = tl.minimum(first + share, length)
    row, lane, step = tl.arange(0, rows), tl.arange(0, size), tl.arange(0, turn)
    own = row < group
    query = ((request * key_heads + head) * group + row[:, None]) * size + lane[None, :]
    asked = tl.load(q + query, mask=own[:, None], other=0.0)
    highest = tl.full((rows,), -1e30, tl.float32)
    total = tl.zeros((rows,), tl.float32)
    found = tl.zeros((rows, size), tl.float32)
    for start in range(first, last, turn):
        page = tl.load(table + request * columns + start // block).to(tl.int64)
        valid = start + step < last
        where = ((page * block + start % block + step)[:, None] * key_heads + head) * size
        key = tl.load(k_cache + where + lane[None, :], mask=valid[:, None], other=0.0)
        value = tl.load(v_cache + where + lane[None, :], mask=valid[:, None], other=0.0)
        score = tl.dot(asked, tl.trans(key)) * scale
        score = tl.where(valid[None, :], score, -1e30)
        above = tl.maximum(highest, tl.max(score, 1))
        likely = tl.exp(score - above[:, None])
        kept = tl.exp(highest - above)
        total = total * kept + tl.sum(likely, 1)
        found = found * kept[:, None] + tl.dot(likely.to(value.dtype), value)
        highest = above
    some = tl.maximum(total, 1e-30)
    at = ((request * key_heads + head) * group + row) * parts + part
    tl.store(weights + at, tl.where(total > 0, highest + tl.log(some), -1e30), mask=own)
    result = found / some[:, None]
    tl.store(partial + at[:, None] * size + lane[None, :], result, mask=own[:, None])


@triton.jit  # type: ignore[untyped-decorator]
def _combine(  # type: ignore[no-untyped-def]
    partial,
    weights,
    result,
    heads: tl.constexpr,
    parts: tl.constexpr,
    size: tl.constexpr,
):
    at = tl.program_id(0) * heads + tl.program_id(1)
    part, lane = tl.arange(0, parts), tl.arange(0, size)
    weight = tl.load(weights + at * parts + part)
    share = tl.exp(weight - tl.max(weight, 0))
    share = share / tl.sum(share, 0)
    values = tl.load(partial + (at * parts + part)[:, None] * size + lane[None, :])
    tl.store(result + at * size + lane, tl.sum(values * share[:, None], 0))
