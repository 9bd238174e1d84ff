"""One method per operation of the drafter (sections 4, 5, 7 and 8 of the model note).

Rows are rows of any number of blocks at once; only attention needs to know which block a row is in.
"""

from __future__ import annotations

import dataclasses

import numpy as np

import ops
from numerics import round_bf16, round_bf16_by_f32
from ops import Rules
from weights import Weights


@dataclasses.dataclass(frozen=True)
class Stages:
    weights: Weights
    rules: Rules
    integer_path: bool = False

    def linear(
        self,
        prefix: str,
        x: np.ndarray,
        k_parts: int = 1,
        suh_of: str | None = None,
        place: str = "linear",
    ) -> np.ndarray:
        """x times one matrix, rounded as results of `place` are.

        In the bf16 setting the golden vectors' decoded matrices went to bf16 by way of fp32, the
        head's alone straight from float64 (found by comparing one operation at a time).
        """
        round_weights = None
        if "weight" in self.rules.rounding.bf16_places:
            round_weights = round_bf16 if place == "logits" else round_bf16_by_f32
        y = self.weights.linear(
            prefix,
            x,
            round_weights=round_weights,
            integer_path=self.integer_path,
            k_parts=k_parts,
            suh_of=suh_of,
        )
        return self.rules.rounding.at(place, y)

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        return ops.rms_norm(self.rules, x, self.weights.f64(f"{name}.weight"))

    # -- context rows (section 4) -------------------------------------------------------------

    def main_x(self, taps: np.ndarray) -> np.ndarray:
        """RMSNorm(main_proj tap, main_norm) of taps [rows, taps * dim]."""
        if "taps_reversed" in self.rules.faults:
            split = taps.reshape(len(taps), self.rules.config.taps, -1)
            taps = split[:, ::-1].reshape(len(taps), -1)
        return self.norm("mtp.0.main_norm", self.linear("mtp.0.main_proj", taps))

    def keys(self, s: int, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """K rows of main_x (context) or of attn_in (the block's own rows)."""
        normed = self.norm(f"mtp.{s}.attn.kv_norm", self.linear(f"mtp.{s}.attn.wkv", x))
        return ops.key_rows(self.rules, normed, positions)

    # -- hyper-connections (3.5) --------------------------------------------------------------

    def mix(self, s: int, part: str, h: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(pre, post, comb) of stage s; part is "attn" or "ffn"."""
        fn, base, scale = (
            self.weights.f64(f"mtp.{s}.hc_{part}_{name}") for name in ("fn", "base", "scale")
        )
        return ops.mix(self.rules, h, fn, base, scale)

    def sublayer_in(self, s: int, part: str, h: np.ndarray, pre: np.ndarray) -> np.ndarray:
        """attn_in or ffn_in: the norm of the collapsed streams."""
        return self.norm(f"mtp.{s}.{part}_norm", ops.collapse(self.rules, h, pre))

    def head_weights(self, h: np.ndarray) -> np.ndarray:
        """V4's learned collapse: sigmoid((fn . flat) rsqrt(mean + eps) scale + base) + hc_eps."""
        config = self.rules.config
        last = f"mtp.{self.weights.stages - 1}.hc_head"
        fn, base, scale = (self.weights.f64(f"{last}_{name}") for name in ("fn", "base", "scale"))
        flat = h.reshape(len(h), -1)
        mean = np.mean(flat * flat, axis=1, keepdims=True)
        logits = (flat @ fn.T) / np.sqrt(mean + config.norm_eps)
        return ops.sigmoid(logits * scale[0] + base) + config.hc_eps

    # -- attention (section 5) ----------------------------------------------------------------

    def query_latent(self, s: int, x: np.ndarray) -> np.ndarray:
        return self.norm(f"mtp.{s}.attn.q_norm", self.linear(f"mtp.{s}.attn.wq_a", x))

    def query(self, s: int, qr: np.ndarray, positions: np.ndarray) -> np.ndarray:
        config = self.rules.config
        q = self.linear(f"mtp.{s}.attn.wq_b", qr).reshape(-1, config.heads, config.head_dim)
        if config.arch == "v4" or "v4_query_norm" in self.rules.faults:
            q = ops.rms_norm(self.rules, q, 1.0)
        return ops.rope(self.rules, q, positions)

    def attend(
        self, s: int, q: np.ndarray, context: np.ndarray, block: np.ndarray, positions: np.ndarray
    ) -> np.ndarray:
        """One block's attention output after the inverse RoPE, [rows, heads, head_dim]."""
        sink = self.weights.f64(f"mtp.{s}.attn.attn_sink")
        o = ops.sink_attention(self.rules, q, context, block, sink)
        if "no_inverse_rope" in self.rules.faults:
            return o
        return ops.rope(self.rules, o, positions, inverse=True)

    def group_out(self, s: int, o: np.ndarray) -> np.ndarray:
        """z = wo_a[g] . concat(the group's heads), groups in order, [rows, groups * o_lora]."""
        config, prefix = self.rules.config, f"mtp.{s}.attn.wo_a"
        grouped = o.reshape(len(o), config.o_groups, -1)
        if self.weights.has(f"{prefix}.slice.0.trellis"):
            parts = [
                self.linear(f"{prefix}.slice.{g}", grouped[:, g]) for g in range(config.o_groups)
            ]
            return np.concatenate(parts, axis=1)
        weight = self.weights.wo_a_fp8(prefix, "scale_block_T" in self.rules.faults)
        weight = weight.reshape(config.o_groups, config.o_lora, -1)
        parts = [grouped[:, g] @ weight[g].T for g in range(config.o_groups)]
        return self.rules.rounding.at("linear", np.concatenate(parts, axis=1))

    def attn_out(self, s: int, z: np.ndarray) -> np.ndarray:
        return self.rules.rounding.at("sum", self.linear(f"mtp.{s}.attn.wo_b", z, k_parts=2))

    # -- experts (3.7, 3.8) -------------------------------------------------------------------

    def router_logits(self, s: int, x: np.ndarray) -> np.ndarray:
        return x @ self.weights.f64(f"mtp.{s}.ffn.gate.weight").T

    def route(self, s: int, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        name = "bias_vl" if "bias_vl" in self.rules.faults else "bias"
        return ops.route(self.rules, logits, self.weights.f64(f"mtp.{s}.ffn.gate.{name}"))

    def expert(self, prefix: str, x: np.ndarray, weight: np.ndarray | float) -> np.ndarray:
        """w2 (silu(min(w1 x, L)) clamp(w3 x) weight)."""
        swap = f"{prefix}.w1" if "swap_suh" in self.rules.faults else None
        gate = self.linear(f"{prefix}.w1", x)
        up = self.linear(f"{prefix}.w3", x, suh_of=swap)
        inner = ops.swiglu(self.rules, gate, up, weight)
        return self.linear(f"{prefix}.w2", inner, k_parts=2)

    def routed(self, s: int, x: np.ndarray, ids: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Sum over the chosen experts in ascending expert id."""
        total = np.zeros_like(x)
        for expert in np.unique(ids):
            rows, slots = np.nonzero(ids == expert)
            prefix = f"mtp.{s}.ffn.experts.{expert}"
            total[rows] += self.expert(prefix, x[rows], weights[rows, slots][:, None])
        return total

    def shared(self, s: int, x: np.ndarray) -> np.ndarray:
        if "no_shared" in self.rules.faults:
            return np.zeros_like(x)
        return self.expert(f"mtp.{s}.ffn.shared_experts", x, 1.0)

    def ffn_out(self, routed: np.ndarray, shared: np.ndarray) -> np.ndarray:
        return self.rules.rounding.at("sum", routed + shared)

    # -- heads (sections 7 and 8) -------------------------------------------------------------

    def hidden(self, collapsed: np.ndarray) -> np.ndarray:
        return self.norm(f"mtp.{self.weights.stages - 1}.norm", collapsed)

    def base_logits(self, hidden: np.ndarray) -> np.ndarray:
        """Never rounded to bf16 (the head's weights are, like all others, in the bf16 setting)."""
        return self.linear("head", hidden, place="logits")

    def _markov(self, *names: str) -> np.ndarray:
        last = f"mtp.{self.weights.stages - 1}.markov_head"
        return self.weights.f64(*(f"{last}.{name}.weight" for name in names))

    def markov_embed(self, ids: np.ndarray) -> np.ndarray:
        return self._markov("embed", "markov_w1")[ids]

    def markov_bias(self, ids: np.ndarray) -> np.ndarray:
        """bias(t)[v] = sum_k W[v, k] E[t, k] of the tokens fed in, [len(ids), vocab]."""
        bias = self.markov_embed(ids) @ self._markov("head", "markov_w2").T
        return self.rules.rounding.at("markov", bias)

    def confidence(self, collapsed: np.ndarray, fed: np.ndarray) -> np.ndarray:
        """w . [pre-norm collapse, E[token fed in]]: the raw logit."""
        name = f"mtp.{self.weights.stages - 1}.confidence_head.proj.weight"
        source = np.concatenate([collapsed, self.markov_embed(fed)], axis=1)
        return source @ self.weights.f64(name)[0]
