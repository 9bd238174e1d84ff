"""One operation at a time, each fed the golden values of its inputs.

A whole round lets an error of one operation hide behind, or be blamed on, another; here every result
has exactly one operation between it and golden tensors. (Where a round's file has no streams_attn, that
one is recomputed from golden tensors first.)
"""

from __future__ import annotations

import numpy as np

import ops
from comparison import Bound, Checks
from drafter import Drafter, RoundInput, Tensors, top_two


def _stage_operations(
    drafter: Drafter, s: int, gold: Tensors, h: np.ndarray, pre: np.ndarray, positions: np.ndarray
) -> Tensors:
    """Results of stage s from its golden intermediates, streams h and input mix `pre`."""
    st, rules, out = drafter.stages, drafter.rules, {}

    def g(name: str) -> np.ndarray:
        return gold[f"s{s}.{name}"]

    out["attn_pre"], out["attn_post"], out["attn_comb"] = st.mix(s, "attn", h)
    out["attn_in"] = st.sublayer_in(s, "attn", h, pre)
    out["qr"] = st.query_latent(s, g("attn_in"))
    out["q"] = st.query(s, g("qr"), positions)
    out["k_block"] = st.keys(s, g("attn_in"), positions)
    out["o"] = st.attend(s, g("q"), g("ring"), g("k_block"), positions)
    out["z"] = st.group_out(s, g("o"))
    out["attn_out"] = st.attn_out(s, g("z"))
    out["streams_attn"] = ops.update(rules, g("attn_out"), h, g("attn_post"), g("attn_comb"))
    after = gold.get(f"s{s}.streams_attn", out["streams_attn"])
    out["ffn_pre"], out["ffn_post"], out["ffn_comb"] = st.mix(s, "ffn", after)
    out["ffn_in"] = st.sublayer_in(s, "ffn", after, g("attn_pre"))
    x = g("ffn_in")
    out["router_logits"] = st.router_logits(s, x)
    out["route_ids"], out["route_weights"], out["route_margin"] = st.route(s, g("router_logits"))
    out["routed"] = st.routed(s, x, g("route_ids").astype(np.int64), g("route_weights"))
    out["shared"] = st.shared(s, x)
    out["ffn_out"] = st.ffn_out(g("routed"), g("shared"))
    out["streams"] = ops.update(rules, g("ffn_out"), after, g("ffn_post"), g("ffn_comb"))
    return {f"s{s}.{name}": value for name, value in out.items()}


def one_operation(drafter: Drafter, item: RoundInput, gold: Tensors) -> Tensors:
    """All results of a full round, named like the golden tensors (without the round's prefix)."""
    st = drafter.stages
    out: Tensors = {"main_x": st.main_x(item.taps)}
    h, pre = drafter.first_streams(np.array([item.anchor]))
    positions = drafter.block_positions(np.array([item.anchor_position]))
    for s in range(drafter.stage_count):
        rows = st.keys(s, gold["main_x"], item.positions)
        out[f"s{s}.ring"] = rows[-len(gold[f"s{s}.ring"]) :]  # this round's rows in the window
        out.update(_stage_operations(drafter, s, gold, h, pre, positions))
        h, pre = gold[f"s{s}.streams"], gold[f"s{s}.ffn_pre"]
    out["collapse"] = drafter.final_collapse(h, pre)
    out["hidden"] = st.hidden(gold["collapse"])
    out["base_logits"] = st.base_logits(gold["hidden"])
    fed = np.concatenate([[item.anchor], gold["drafts"][:-1]]).astype(np.int64)
    out["markov_bias"] = st.markov_bias(fed)
    scores = gold["base_logits"] + out["markov_bias"]
    out["top2_ids"] = np.stack([top_two(row) for row in scores])
    out["top2_values"] = np.take_along_axis(scores, out["top2_ids"], axis=1)
    out["drafts"] = out["top2_ids"][:, 0]
    out["confidence"] = st.confidence(gold["collapse"], fed)
    return out


# What each result's operation is, for bounds that depend on it.
FP32_RESULTS = frozenset(
    """attn_pre attn_post attn_comb ffn_pre ffn_post ffn_comb router_logits route_weights
    route_margin base_logits markov_bias top2_values confidence""".split()
)
EXPERTS = frozenset({"routed", "shared"})
EXL3_LINEARS = frozenset({"main_x", "qr", "q", "attn_out", "base_logits", "ring", "k_block"})
IDS = frozenset({"route_ids", "top2_ids", "drafts"})
K_ROWS = frozenset({"ring", "k_block"})


def bounds_of(kind: str, label: str) -> list[Bound]:
    """The golden README's one-operation rows: kind f32, bf16, integer or integer_bf16."""
    if label in K_ROWS and kind == "integer_bf16":
        return [Bound("rel", 5e-2)]
    if kind.startswith("integer") and (label in EXPERTS or label in EXL3_LINEARS):
        if kind == "integer":
            return [Bound("rel", 1.3e-3 if label in EXPERTS else 7e-4)]
        if label == "base_logits":
            return [Bound("rel", 5e-3)]
        return [Bound("rel", 1.5e-2 if label in EXPERTS else 1e-2)]
    if kind in ("f32", "integer"):
        return [Bound("max", 3e-6)]
    if label in FP32_RESULTS:
        return [Bound("max", 4e-6)]
    if label == "routed":
        return [Bound("rel", 1e-3)]
    return [Bound("rel", 6e-3 if label in K_ROWS else 1.5e-3), Bound("unequal", 0.03)]


def compare_operations(checks: Checks, kind: str, ours: Tensors, gold: Tensors, where: str) -> None:
    """One check per golden tensor of the round, plus the ids."""
    for name, want in gold.items():
        label = name.rpartition(".")[2]
        got = ours[name]
        if label == "ring":
            want = want[-len(got) :]
        if label in IDS:
            checks.equal(label, int(np.sum(got != want)), where)
            continue
        for bound in bounds_of(kind, label):
            checks.measure(label, bound, got, want, where)
