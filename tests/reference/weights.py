"""A checkpoint's tensors as float64 linears, decoded once and kept in memory up to a limit."""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import re
from collections.abc import Callable

import numpy as np

from config import Config, read_config
from exl3 import Exl3Matrix, read_matrix
from safetensors_io import Tensor, read_folder

_CACHE_BYTES = 3 << 30
_CHUNK_VALUES = 1 << 25  # decode at most this many values of one matrix at a time

# What may stand under `mtp.<stage>.`; EXL3 parts and the expert index are folded away first.
_STAGE_NAMES = frozenset(
    """attn.wq_a attn.wq_b attn.wkv attn.wo_b attn.wo_a attn.wo_a.slice.# attn.q_norm.weight
    attn.kv_norm.weight attn.attn_sink attn_norm.weight ffn_norm.weight hc_attn_fn hc_attn_base
    hc_attn_scale hc_ffn_fn hc_ffn_base hc_ffn_scale ffn.gate.weight ffn.gate.bias ffn.gate.bias_vl
    ffn.shared_experts.w1 ffn.shared_experts.w2 ffn.shared_experts.w3 ffn.experts.#.w1
    ffn.experts.#.w2 ffn.experts.#.w3 main_proj main_norm.weight norm.weight
    confidence_head.proj.weight markov_head.embed.weight markov_head.head.weight
    markov_head.markov_w1.weight markov_head.markov_w2.weight hc_head_fn hc_head_base
    hc_head_scale""".split()
)
_LINEAR_PARTS = (".trellis", ".suh", ".svh", ".mul1", ".mcg", ".weight", ".scale")


def _count_stages(tensors: dict[str, Tensor]) -> int:
    """Stages are the consecutive `mtp.<s>.`; every name below them must be a known one."""
    stages: set[int] = set()
    for name in tensors:
        match = re.fullmatch(r"mtp\.(\d+)\.(.+)", name)
        if not match:
            continue
        stages.add(int(match.group(1)))
        folded = re.sub(r"(experts|slice)\.\d+", r"\1.#", match.group(2))
        stems = {folded} | {folded.removesuffix(part) for part in _LINEAR_PARTS}
        if not stems & _STAGE_NAMES:
            raise ValueError(f"checkpoint: {name} is no tensor of this drafter")
    if not stages or stages != set(range(len(stages))):
        raise ValueError(f"checkpoint: stages {sorted(stages)} are not 0, 1, ..")
    return len(stages)


@dataclasses.dataclass
class Weights:
    """Tensors by name, and `linear()`: y = x . W for whatever form W is stored in."""

    config: Config
    tensors: dict[str, Tensor]
    stages: int
    _cache: collections.OrderedDict[tuple, np.ndarray]

    @classmethod
    def load(cls, folder: pathlib.Path) -> Weights:
        config, tensors = read_config(folder), read_folder(folder)
        stages = _count_stages(tensors)
        for s in range(stages):
            gate = tensors[f"mtp.{s}.ffn.gate.weight"].shape
            if gate != (config.experts, config.dim):
                raise ValueError(f"mtp.{s}.ffn.gate.weight: {gate} does not fit the config")
        return cls(config, tensors, stages, collections.OrderedDict())

    def has(self, name: str) -> bool:
        return name in self.tensors

    def f64(self, *names: str) -> np.ndarray:
        """The first of `names` that exists, widened."""
        for name in names:
            if name in self.tensors:
                return self.cached((name,), self.tensors[name].f64)
        raise KeyError(f"checkpoint: none of {', '.join(names)} is present")

    def cached(self, key: tuple, make) -> np.ndarray:
        """make()'s array, kept until newer ones need the room."""
        if key in self._cache:
            self._cache.move_to_end(key)
            return self._cache[key]
        array = make()
        self._cache[key] = array
        while sum(kept.nbytes for kept in self._cache.values()) > _CACHE_BYTES:
            self._cache.popitem(last=False)
        return array

    def matrix(self, prefix: str, k_parts: int, suh_of: str | None) -> Exl3Matrix:
        matrix = read_matrix(self.tensors, prefix, k_parts)
        if suh_of is not None:
            matrix = dataclasses.replace(matrix, suh=self.f64(f"{suh_of}.suh"))
        return matrix

    def linear(
        self,
        prefix: str,
        x: np.ndarray,
        *,
        round_weights: Callable[[np.ndarray], np.ndarray] | None = None,
        integer_path: bool = False,
        k_parts: int = 1,
        suh_of: str | None = None,
    ) -> np.ndarray:
        """x [rows, k] times the matrix of `prefix`, [rows, n].

        `round_weights` is applied to the dense form. `integer_path` is the worker's arithmetic: exact
        integers for mul1 matrices, fp16 activations for the other codebooks.
        `suh_of` is the deliberate mistake of decoding with another matrix's input scales.
        """
        if f"{prefix}.trellis" not in self.tensors:
            return x @ self._plain(prefix)
        matrix = self.matrix(prefix, k_parts, suh_of)
        step = max(128, _CHUNK_VALUES // matrix.k // 128 * 128)
        parts = []
        for begin in range(0, matrix.n, step):
            part = matrix.columns(begin, min(begin + step, matrix.n))
            if integer_path and matrix.codebook == "mul1":
                ints = self.cached((prefix, "integer", begin), part.integers)
                parts.append(part.apply_integer(x, ints))
                continue
            if integer_path:
                halves = self.cached((prefix, "half", begin), part.halves)
                parts.append(part.apply_half(x, halves))
                continue
            dense = self.cached((prefix, suh_of, begin), part.dense)
            if round_weights is not None:
                key = (prefix, suh_of, begin, round_weights.__name__)
                dense = self.cached(key, lambda exact=dense: round_weights(exact))
            parts.append(x @ dense)
        return np.concatenate(parts, axis=-1)

    def _plain(self, prefix: str) -> np.ndarray:
        """A matrix stored as [out, in] values, transposed to [in, out]."""
        dtype = self.tensors[f"{prefix}.weight"].dtype
        if dtype not in ("BF16", "F16", "F32"):
            raise ValueError(f"{prefix}.weight: {dtype} is decoded here for wo_a only")
        return self.f64(f"{prefix}.weight").T

    def wo_a_fp8(self, prefix: str, scale_transposed: bool) -> np.ndarray:
        """[out, in] = e4m3 bytes times one fp32 scale per block; the shapes tell the block."""

        def decode() -> np.ndarray:
            weight = self.tensors[f"{prefix}.weight"]
            scale = self.tensors[f"{prefix}.scale"].f64()
            scale = scale.T if scale_transposed else scale
            block = max(-(-w // s) for w, s in zip(weight.shape, scale.shape))
            wanted = tuple(-(-length // block) for length in weight.shape)
            if scale.shape != wanted or block not in (32, 128):
                raise ValueError(f"{prefix}.scale: {scale.shape} fits no 32 or 128 block")
            wide = scale.repeat(block, axis=0).repeat(block, axis=1)
            return weight.f64() * wide[: weight.shape[0], : weight.shape[1]]

        return self.cached((prefix, "fp8", scale_transposed), decode)
