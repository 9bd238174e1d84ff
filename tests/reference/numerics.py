"""Rounding to the short types, and the named places where a setting rounds.

Everything is computed in float64; a `Rounding` says which intermediate results are rounded to bf16
or fp32 on the way. The places follow sections 3 to 5 of the model note and the facts in the golden
README.
"""

from __future__ import annotations

import dataclasses

import numpy as np

E4M3_MAX = 448.0
_BF16_SHIFT_BITS = 16


def round_bf16(x: np.ndarray) -> np.ndarray:
    """float64 to the nearest bf16 (ties to even), straight from float64: one rounding."""
    with np.errstate(divide="ignore", invalid="ignore"):
        mantissa, exponent = np.frexp(np.asarray(x, dtype=np.float64))
    # 8 significant bits; below 2^-126 the grid stays at 2^-133.
    step_exponent = np.maximum(exponent - 8, -133)
    return np.ldexp(np.rint(np.ldexp(mantissa, exponent - step_exponent)), step_exponent)


def round_f32(x: np.ndarray) -> np.ndarray:
    return np.asarray(x, dtype=np.float32).astype(np.float64)


def round_bf16_by_f32(x: np.ndarray) -> np.ndarray:
    """Two roundings, float64 to fp32 to bf16: one value in about 2^16 differs from round_bf16."""
    return round_bf16(round_f32(x))


def bf16_to_f64(bits: np.ndarray) -> np.ndarray:
    wide = np.asarray(bits, dtype=np.uint32) << np.uint32(_BF16_SHIFT_BITS)
    return wide.view(np.float32).astype(np.float64)


def f64_to_bf16_bits(x: np.ndarray) -> np.ndarray:
    """The uint16 pattern of the nearest bf16."""
    bits = round_bf16(x).astype(np.float32).view(np.uint32)
    return (bits >> np.uint32(_BF16_SHIFT_BITS)).astype(np.uint16)


def e4m3_to_f64(codes: np.ndarray) -> np.ndarray:
    """e4m3 (OCP "fn": no infinity) to float64; the NaN codes 0x7F and 0xFF are refused (3.3)."""
    codes = np.asarray(codes, dtype=np.uint8)
    if np.any((codes & 0x7F) == 0x7F):
        raise ValueError("F8_E4M3 data holds a NaN code")
    field = (codes >> 3) & 0xF
    fraction = (codes & 7).astype(np.float64) / 8.0
    magnitude = np.where(
        field == 0,
        np.ldexp(fraction, -6),
        np.ldexp(1.0 + fraction, field.astype(np.int32) - 7),
    )
    return np.where(codes & 0x80, -magnitude, magnitude)


def round_e4m3(x: np.ndarray) -> np.ndarray:
    """Nearest e4m3 value of |x| <= 448, ties to even; the step below 2^-6 is 2^-9."""
    _, exponent = np.frexp(x)
    step_exponent = np.maximum(exponent - 4, -9)
    return np.ldexp(np.rint(np.ldexp(x, -step_exponent)), step_exponent)


# Where a result may be rounded, and what is meant.
PLACES: dict[str, str] = {
    "weight": "dense form of an EXL3 matrix",
    "linear": "a linear's output, except the head's",
    "norm": "a norm's output",
    "rope": "a rotated row",
    "kv": "K rows after the fake quantization",
    "prob": "attention exponentials, for the value product only",
    "o": "attention output before the inverse RoPE",
    "swiglu": "an FFN's inner vector",
    "sum": "attention or FFN output as a whole",
    "stream": "streams after an update",
    "collapse": "collapsed streams",
    "markov": "Markov bias rows",
}


@dataclasses.dataclass(frozen=True)
class Rounding:
    """A setting: the KV fake quantization, and the places rounded to bf16 (keys of PLACES)."""

    name: str
    fake_quant: bool
    bf16_places: frozenset[str] = frozenset()
    f32_elsewhere: bool = False  # imitates fp32 arithmetic: every other place is rounded to fp32

    def at(self, place: str, x: np.ndarray) -> np.ndarray:
        if place in self.bf16_places:
            return round_bf16(x)
        return round_f32(x) if self.f32_elsewhere else x

    def without(self, *places: str) -> Rounding:
        return dataclasses.replace(self, bf16_places=self.bf16_places - set(places))


# The reference keeps the Markov bias in fp32. The worker stores or sends in 16 bits only ring rows,
# all-reduced sums, streams and cached bias rows.
_REFERENCE_PLACES = frozenset(PLACES) - {"markov"}
_WORKER_PLACES = frozenset({"kv", "sum", "stream", "markov"})

SETTINGS: dict[str, Rounding] = {
    "f32": Rounding("f32", fake_quant=False),
    "f32_fq": Rounding("f32_fq", fake_quant=True),
    "bf16": Rounding("bf16", fake_quant=True, bf16_places=_REFERENCE_PLACES),
    "product": Rounding("product", fake_quant=True, bf16_places=_WORKER_PLACES),
    "product_nofq": Rounding("product_nofq", fake_quant=False, bf16_places=_WORKER_PLACES),
}
