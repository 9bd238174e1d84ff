"""The drafter's shape from a checkpoint's config.json (section 1 of the model note).

Text fields may sit under `text_config`; the drafter's own counts have two spellings and win over
the trunk's. `arch` is the only switch that is not a number.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Config:
    arch: str  # "v41" or "v4"
    dim: int
    vocab: int
    heads: int
    head_dim: int
    rope_dim: int
    q_lora: int
    o_groups: int
    o_lora: int
    experts: int
    top_k: int
    moe_inter: int
    route_scale: float
    swiglu_limit: float
    window: int
    rope_theta: float
    norm_eps: float
    hc_mult: int
    sinkhorn_iters: int
    hc_eps: float
    block: int
    noise_id: int
    taps: int
    markov_rank: int

    @property
    def fake_quant_group(self) -> int:
        """Values that share one scale of the KV fake quantization (3.4)."""
        return 32 if self.arch == "v41" else 64

    @property
    def fake_quant_dims(self) -> int:
        """How many leading values of a K row are fake-quantized (3.4; section 1, row 4)."""
        return self.head_dim if self.arch == "v41" else self.head_dim - self.rope_dim


def _pick(fields: Mapping[str, Any], *names: str) -> Any:
    for name in names:
        if name in fields:
            return fields[name]
    raise ValueError(f"config.json: none of {', '.join(names)} is present")


def _arch(root: Mapping[str, Any], fields: Mapping[str, Any]) -> str:
    """v41 if any model type or architecture name says V4.1, v4 if it says V4."""
    names = [root.get("model_type", ""), fields.get("model_type", ""), root.get("arch", "")]
    names += root.get("architectures", [])
    text = " ".join(names).lower().replace(".", "").replace("_", "")
    for arch in ("v41", "v4"):
        if arch in text:
            return arch
    raise ValueError(f"config.json: no V4 or V4.1 model type in {names}")


def parse_config(root: Mapping[str, Any]) -> Config:
    fields = root.get("text_config", root)
    return Config(
        arch=_arch(root, fields),
        dim=_pick(fields, "hidden_size", "dim"),
        vocab=_pick(fields, "vocab_size"),
        heads=_pick(fields, "num_attention_heads", "n_heads"),
        head_dim=_pick(fields, "head_dim"),
        rope_dim=_pick(fields, "qk_rope_head_dim", "rope_head_dim"),
        q_lora=_pick(fields, "q_lora_rank"),
        o_groups=_pick(fields, "o_groups"),
        o_lora=_pick(fields, "o_lora_rank"),
        experts=_pick(fields, "dspark_n_routed_experts", "n_routed_experts"),
        top_k=_pick(
            fields,
            "dspark_num_experts_per_tok",
            "dspark_n_activated_experts",
            "num_experts_per_tok",
            "n_activated_experts",
        ),
        moe_inter=_pick(
            fields, "dspark_moe_intermediate_size", "moe_intermediate_size", "moe_inter_dim"
        ),
        route_scale=float(_pick(fields, "routed_scaling_factor", "route_scale")),
        swiglu_limit=float(_pick(fields, "swiglu_limit")),
        window=_pick(fields, "sliding_window", "window_size"),
        rope_theta=float(_pick(fields, "rope_theta")),
        norm_eps=float(_pick(fields, "rms_norm_eps", "norm_eps")),
        hc_mult=_pick(fields, "hc_mult"),
        sinkhorn_iters=_pick(fields, "hc_sinkhorn_iters"),
        hc_eps=float(_pick(fields, "hc_eps")),
        block=_pick(fields, "dspark_block_size"),
        noise_id=_pick(fields, "dspark_noise_token_id"),
        taps=len(_pick(fields, "dspark_target_layer_ids")),
        markov_rank=_pick(fields, "dspark_markov_rank"),
    )


def read_config(folder: pathlib.Path) -> Config:
    return parse_config(json.loads((folder / "config.json").read_text()))
