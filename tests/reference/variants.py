"""Checkpoints derived from the golden one that it does not cover: arch v4, wo_a slices, other
codebooks.

They have no golden results; they exist so that every form of a tensor is decoded and compared
somewhere.
"""

from __future__ import annotations

import copy
import json
import pathlib
from typing import Any

import numpy as np

from numerics import f64_to_bf16_bits
from safetensors_io import Tensor, read_folder, write_file

Folder = tuple[dict[str, Any], dict[str, Tensor]]  # config.json and the tensors


def read_golden(folder: pathlib.Path) -> Folder:
    return json.loads((folder / "config.json").read_text()), read_folder(folder)


def write_folder(folder: pathlib.Path, content: Folder) -> None:
    config, tensors = content
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_file(folder / "model.safetensors", tensors)


def random_matrix(
    rng: np.random.Generator, k: int, n: int, bits: int, codebook: str
) -> dict[str, Tensor]:
    """Parts of an EXL3 matrix with random trellis bits and outputs of the size of its inputs."""

    def scales(count: int, size: float) -> Tensor:
        values = size * rng.uniform(0.75, 1.25, count) * rng.choice([-1.0, 1.0], count)
        return Tensor("F16", values.astype(np.float16))

    trellis = rng.integers(-(1 << 15), 1 << 15, (k // 16, n // 16, 16 * bits), dtype=np.int16)
    parts = {
        "trellis": Tensor("I16", trellis),
        "suh": scales(k, 1.0),
        "svh": scales(n, 0.8 / np.sqrt(k)),
    }
    multiplier = {"mul1": 0x83DCD12D, "mcg": 0xCBAC1FED}.get(codebook)
    if multiplier is not None:
        parts[codebook] = Tensor("I32", np.array(multiplier, dtype=np.uint32).view(np.int32))
    return parts


def replace_matrix(tensors: dict[str, Tensor], prefix: str, parts: dict[str, Tensor]) -> None:
    for name in [name for name in tensors if name.startswith(f"{prefix}.")]:
        del tensors[name]
    tensors.update({f"{prefix}.{part}": tensor for part, tensor in parts.items()})


def as_v4(golden: Folder, norm_eps: float = 1e-6, wide_scales: bool = True) -> Folder:
    """Arch v4: flat config, V4's names, hc_head in the last stage, no bias_vl, 128 x 128 scales.

    With the golden norm_eps and scales only the six semantic differences are left.
    """
    root, tensors = copy.deepcopy(golden[0]), dict(golden[1])
    fields = root.pop("text_config")
    root.update(fields)
    root.update(model_type="deepseek_v4", architectures=["DeepseekV4ForCausalLM"])
    root["rms_norm_eps"] = norm_eps
    root["n_routed_experts"] = root.pop("dspark_n_routed_experts")
    root["num_experts_per_tok"] = root.pop("dspark_num_experts_per_tok")
    for name in list(tensors):
        if name.endswith("gate.bias_vl"):
            del tensors[name]
        elif name.endswith("wo_a.scale") and wide_scales:
            tensors[name] = Tensor("F32", np.ascontiguousarray(tensors[name].data[::4, ::4]))
    last = fields["num_nextn_predict_layers"] - 1
    for old, new in (("embed", "markov_w1"), ("head", "markov_w2")):
        tensor = tensors.pop(f"mtp.{last}.markov_head.{old}.weight")
        tensors[f"mtp.{last}.markov_head.{new}.weight"] = tensor
    rng = np.random.default_rng(4)
    width = root["hc_mult"] * root["hidden_size"]
    for part, values in (
        ("fn", rng.normal(0, 1 / np.sqrt(width), (root["hc_mult"], width))),
        ("base", rng.normal(0, 0.5, root["hc_mult"])),
        ("scale", np.array([1.5])),
    ):
        tensors[f"mtp.{last}.hc_head_{part}"] = Tensor("F32", values.astype(np.float32))
    return root, tensors


def as_mixed(golden: Folder) -> Folder:
    """V4.1 as public packs have it: wo_a in EXL3 slices, fp16 gate and Markov, mixed K."""
    root, tensors = copy.deepcopy(golden[0]), dict(golden[1])
    rng = np.random.default_rng(41)
    stages = root["text_config"]["num_nextn_predict_layers"]
    for s in range(stages):
        replace_matrix(tensors, f"mtp.{s}.attn.wo_a", {})
        for group, (bits, codebook) in enumerate(((3, "mcg"), (8, "3inst"))):
            parts = random_matrix(rng, 256, 128, bits, codebook)
            replace_matrix(tensors, f"mtp.{s}.attn.wo_a.slice.{group}", parts)
    for prefix, k, n, bits, codebook in (
        ("mtp.0.main_proj", 768, 256, 1, "mul1"),
        ("mtp.1.attn.wq_b", 128, 512, 7, "3inst"),
        ("mtp.1.attn.wo_b", 256, 256, 4, "mul1"),
        ("mtp.0.ffn.experts.0.w1", 256, 256, 4, "mcg"),
        ("mtp.2.ffn.shared_experts.w2", 256, 256, 8, "mul1"),
        ("head", 256, 1280, 3, "mul1"),
    ):
        replace_matrix(tensors, prefix, random_matrix(rng, k, n, bits, codebook))
    for name in list(tensors):
        if name.endswith("gate.weight") or ".markov_head." in name:
            tensors[name] = Tensor("F16", tensors[name].f64().astype(np.float16))
    return root, tensors


def as_bf16(values: np.ndarray) -> Tensor:
    return Tensor("BF16", f64_to_bf16_bits(values))
