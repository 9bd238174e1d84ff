"""The drafter's primitives in float64 (section 3 of the model note).

Every function takes a `Rules` object: the config, where to round, and the deliberate mistakes that
are switched on (names of controls.json). A mistake changes exactly the line it names.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from config import Config
from numerics import E4M3_MAX, Rounding, round_e4m3

_SCALE_FLOOR = 1e-4
_ROUTE_EPS = 1e-20


@dataclasses.dataclass(frozen=True)
class Rules:
    config: Config
    rounding: Rounding
    faults: frozenset[str] = frozenset()


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + e^-x) without overflow on either side."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0 / (1.0 + small), small / (1.0 + small))


def rms_norm(rules: Rules, x: np.ndarray, weight: np.ndarray | float) -> np.ndarray:
    """w (x rsqrt(mean(x^2) + eps)), rounded once (3.1)."""
    mean = np.mean(x * x, axis=-1, keepdims=True)
    return rules.rounding.at("norm", weight * (x / np.sqrt(mean + rules.config.norm_eps)))


def rope_angles(rules: Rules, positions: np.ndarray) -> np.ndarray:
    """t[p, i] = fp32(p f_i), f_i = fp32(1 / fp32(theta^(2 i / d))): three fp32 roundings (3.2)."""
    exponent = 2.0 * np.arange(rules.config.rope_dim // 2) / rules.config.rope_dim
    if "rope_power" in rules.faults:
        frequency = np.float32(rules.config.rope_theta ** -exponent)
    else:
        frequency = np.float32(1.0) / np.float32(rules.config.rope_theta**exponent)
    if "rope_f64_angle" in rules.faults:
        return positions[:, None].astype(np.float64) * frequency.astype(np.float64)
    return (positions[:, None].astype(np.float32) * frequency).astype(np.float64)


def rope(rules: Rules, x: np.ndarray, positions: np.ndarray, inverse: bool = False) -> np.ndarray:
    """Rotates the last rope_dim values of x [rows, ..., head_dim] in adjacent pairs (3.2)."""
    count = rules.config.rope_dim
    angle = rope_angles(rules, positions)
    angle = angle.reshape((len(positions),) + (1,) * (x.ndim - 2) + (count // 2,))
    cos, sin = np.cos(angle), np.sin(-angle if inverse else angle)
    place = slice(0, count) if "rope_first_dims" in rules.faults else slice(-count, None)
    out = x.copy()
    part = x[..., place]
    if "rope_halves" in rules.faults:
        first, second = slice(0, count // 2), slice(count // 2, None)
    else:
        first, second = slice(0, None, 2), slice(1, None, 2)
    a, b = part[..., first], part[..., second]
    out[..., place][..., first] = a * cos - b * sin
    out[..., place][..., second] = a * sin + b * cos
    return rules.rounding.at("rope", out)


def fake_quant(rules: Rules, k: np.ndarray) -> np.ndarray:
    """e4m3 with one power-of-two scale per group of a K row (3.4).

    a = max(max|x|, 1e-4); s = 2^ceil(log2(a / 448)); x' = e4m3(clamp(x / s)) s. A last group may be
    shorter than the others (arch v4 with fewer than 64 values left before the RoPE part).
    """
    config = rules.config
    last = config.head_dim - config.rope_dim if "fq_v4" in rules.faults else config.fake_quant_dims
    out = k.copy()
    for begin in range(0, last, config.fake_quant_group):
        group = slice(begin, min(begin + config.fake_quant_group, last))
        top = np.maximum(np.max(np.abs(k[..., group]), axis=-1, keepdims=True), _SCALE_FLOOR)
        mantissa, exponent = np.frexp(top / E4M3_MAX)  # top / 448 = mantissa 2^exponent, [0.5, 1)
        scale = np.ldexp(1.0, np.where(mantissa == 0.5, exponent - 1, exponent))
        clamped = np.clip(k[..., group] / scale, -E4M3_MAX, E4M3_MAX)
        out[..., group] = round_e4m3(clamped) * scale
    return out


def key_rows(rules: Rules, k: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Normed wkv rows to K rows: RoPE, then the fake quantization (section 4)."""
    quantize = rules.rounding.fake_quant and "fq_none" not in rules.faults
    if quantize and "fq_before_rope" in rules.faults:
        return rules.rounding.at("kv", rope(rules, fake_quant(rules, k), positions))
    k = rope(rules, k, positions)
    return rules.rounding.at("kv", fake_quant(rules, k) if quantize else k)


def mix(
    rules: Rules, h: np.ndarray, fn: np.ndarray, base: np.ndarray, scale: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(pre [rows, m], post [rows, m], comb [rows, m, m]) from streams h [rows, m, D] (3.5)."""
    config = rules.config
    m, eps = config.hc_mult, config.hc_eps
    flat = h.reshape(len(h), -1)
    logits = (flat @ fn.T) / np.sqrt(np.mean(flat * flat, axis=-1, keepdims=True) + config.norm_eps)
    pre = sigmoid(logits[:, :m] * scale[0] + base[:m]) + eps
    post = 2.0 * sigmoid(logits[:, m : 2 * m] * scale[1] + base[m : 2 * m])
    comb = (logits[:, 2 * m :] * scale[2] + base[2 * m :]).reshape(-1, m, m)
    comb = np.exp(comb - comb.max(axis=2, keepdims=True))
    comb = comb / comb.sum(axis=2, keepdims=True) + eps
    comb = comb / (comb.sum(axis=1, keepdims=True) + eps)
    iterations = config.sinkhorn_iters - (1 if "sinkhorn19" in rules.faults else 0)
    for _ in range(iterations - 1):
        comb = comb / (comb.sum(axis=2, keepdims=True) + eps)
        comb = comb / (comb.sum(axis=1, keepdims=True) + eps)
    return pre, post, comb


def collapse(rules: Rules, h: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """sum_i v_i h_i (3.5)."""
    return rules.rounding.at("collapse", np.einsum("ri,rid->rd", weights, h))


def update(
    rules: Rules, y: np.ndarray, h: np.ndarray, post: np.ndarray, comb: np.ndarray
) -> np.ndarray:
    """h'_j = post_j y + sum_i C[i][j] h_i (3.5)."""
    spec = "rji,rid->rjd" if "comb_T" in rules.faults else "rij,rid->rjd"
    return rules.rounding.at("stream", post[:, :, None] * y[:, None, :] + np.einsum(spec, comb, h))


def sink_attention(
    rules: Rules, q: np.ndarray, context: np.ndarray, block: np.ndarray, sink: np.ndarray
) -> np.ndarray:
    """o [rows, heads, hd] of q [rows, heads, hd] over context and block rows, K = V (3.6).

    The softmax gets one more term e^(sink_h - M) in its denominator only. In a bf16 setting the
    reference rounds exponentials against the running maximum of tiles of 64 keys; one tile is
    enough here.
    """
    keys = np.concatenate([context, block])
    if "prob" in rules.rounding.bf16_places and len(keys) > 64:
        raise ValueError(f"bf16 attention is defined here for one tile of 64 keys, got {len(keys)}")
    factor = float(np.float32(rules.config.head_dim**-0.5))
    scores = np.einsum("rhd,kd->rhk", q, keys) * factor
    if "causal" in rules.faults:
        row, key = np.arange(len(q))[:, None], np.arange(len(keys))[None, :] - len(context)
        scores = np.where((key > row)[:, None, :], -np.inf, scores)
    top = scores.max(axis=-1, keepdims=True)
    if "prob" not in rules.rounding.bf16_places:
        top = np.maximum(top, sink[:, None])  # no overflow when every score is far below the sink
    weights = np.exp(scores - top)
    sink = sink * factor if "sink_scaled" in rules.faults else sink
    extra = np.zeros_like(top) if "no_sink" in rules.faults else np.exp(sink[:, None] - top)
    total = weights.sum(axis=-1, keepdims=True) + extra
    values = np.einsum("rhk,kd->rhd", rules.rounding.at("prob", weights), keys)
    return rules.rounding.at("o", values / total)


def route(
    rules: Rules, logits: np.ndarray, bias: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(ids [rows, k], weights [rows, k], margin [rows]) from fp32 router logits (3.7).

    a = sqrt(softplus(logit)); chosen by a + bias, lower id on ties; weights are the unbiased a,
    normalized, times route_scale. margin = k-th minus (k+1)-th selection value.
    """
    top_k = rules.config.top_k
    softplus = np.where(logits > 20, logits, np.log1p(np.exp(np.minimum(logits, 20.0))))
    affinity = np.sqrt(softplus)
    select = affinity if "no_bias" in rules.faults else affinity + bias
    order = np.argsort(-select, axis=-1, kind="stable")
    ids = order[:, :top_k]
    edge = np.take_along_axis(select, order[:, top_k - 1 : top_k + 1], axis=-1)
    margin = edge[:, 0] - edge[:, 1] if edge.shape[1] == 2 else np.full(len(ids), np.inf)
    source = select if "bias_in_weights" in rules.faults else affinity
    weights = np.take_along_axis(source, ids, axis=-1)
    if "no_topk_norm" not in rules.faults:
        weights = weights / (weights.sum(axis=-1, keepdims=True) + _ROUTE_EPS)
    if "no_route_scale" not in rules.faults:
        weights = weights * rules.config.route_scale
    return ids, weights, margin


def swiglu(
    rules: Rules, gate: np.ndarray, up: np.ndarray, weight: np.ndarray | float
) -> np.ndarray:
    """silu(min(g, L)) clamp(u, -L, L) times the routing weight (3.8)."""
    limit = rules.config.swiglu_limit
    if "no_clamp" not in rules.faults:
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    if "gate_clamp_both" in rules.faults:
        gate = np.maximum(gate, -limit)
    return rules.rounding.at("swiglu", gate * sigmoid(gate) * up * weight)
