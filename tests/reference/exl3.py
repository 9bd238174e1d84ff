"""EXL3 matrices in float64: trellis decode, Hadamard transforms, and the exact integer path.

Formulas: sections 1 and 2 of the EXL3 note; the integer path is 6.4a with 15-bit activations.
W is stored input-major: y = x . W, W [k, n] = diag(suh) Hb What Hb diag(svh).
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from safetensors_io import Tensor

CODEBOOKS = ("3inst", "mcg", "mul1")
HADAMARD_BLOCK = 128
_MUL1 = np.uint32(0x83DCD12D)
_MUL1_C = float(np.array(0x1EEE, dtype=np.uint16).view(np.float16))
_MUL1_D = float(np.array(0xC931, dtype=np.uint16).view(np.float16))
INTEGER_LIMIT = 32258  # 127 * 254: the largest |v| of an int8 high part plus an int8 residual


def tile_states(units: np.ndarray, bits: int) -> np.ndarray:
    """States of the 256 positions of tiles [..., 16 * bits] of 16-bit units (2.1, 2.2) as uint16.

    Word w is units 2w (low half) and 2w + 1 (high half), bit 0 its most significant bit.
    state(p) = (((W[i1 - 1 mod 8 bits] << 32) | W[i1]) >> s) & 0xffff with end = (p + 1) bits,
    i1 = (end - 1) / 32, s = 32 (i1 + 1) - end.
    """
    units = np.ascontiguousarray(units).view(np.uint16)
    if units.shape[-1] != 16 * bits:
        raise ValueError(f"a {bits}-bit tile has {16 * bits} units, got {units.shape[-1]}")
    low, high = units[..., 0::2].astype(np.uint64), units[..., 1::2].astype(np.uint64)
    words = low | (high << np.uint64(16))
    end = (np.arange(256) + 1) * bits
    word = (end - 1) // 32
    shift = (32 * (word + 1) - end).astype(np.uint64)
    before = (word - 1) % (8 * bits)
    window = (words[..., before] << np.uint64(32)) | words[..., word]
    return ((window >> shift) & np.uint64(0xFFFF)).astype(np.uint16)


def tile_places() -> tuple[np.ndarray, np.ndarray]:
    """Row and column inside the tile of each position p = 8 t + j (2.3)."""
    t, j = np.divmod(np.arange(256), 8)
    row = 2 * (t % 4) + (j & 1) + 8 * ((j >> 1) & 1)
    column = t // 4 + 8 * (j >> 2)
    return row, column


def byte_sums() -> np.ndarray:
    """mul1's sum b of the product's four bytes, for each of the 65536 states (2.4)."""
    product = np.arange(65536, dtype=np.uint32) * _MUL1
    return sum(((product >> np.uint32(8 * i)) & np.uint32(255)) for i in range(4)).astype(np.int64)


def codebook_table(codebook: str) -> np.ndarray:
    """The fp16 value of each of the 65536 states (2.4), one rounding to fp16."""
    states = np.arange(65536, dtype=np.uint32)
    if codebook == "mul1":
        exact = (1024.0 + byte_sums()) * _MUL1_C + _MUL1_D
        return exact.astype(np.float16)
    if codebook == "mcg":
        x = states * np.uint32(0xCBAC1FED)
    elif codebook == "3inst":
        x = states * np.uint32(89226354) + np.uint32(64248484)
    else:
        raise ValueError(f"codebook {codebook!r} is not one of {CODEBOOKS}")
    x = (x & np.uint32(0x8FFF8FFF)) ^ np.uint32(0x3B603B60)
    halves = np.ascontiguousarray(x).view(np.float16).astype(np.float64)
    return (halves[0::2] + halves[1::2]).astype(np.float16)


def integer_table() -> np.ndarray:
    """mul1 without the fp16 rounding, times 2^17: 887 b - 452608, an exact integer (2.4, 6.4a)."""
    return (887 * byte_sums() - 452608).astype(np.float64)


def scatter_tiles(trellis: np.ndarray, bits: int, table: np.ndarray) -> np.ndarray:
    """What [k, n]: table values at their places, tile (i, j) at rows 16 i and columns 16 j."""
    k_tiles, n_tiles, _ = trellis.shape
    row, column = tile_places()
    tile = np.empty((k_tiles, n_tiles, 16, 16), dtype=table.dtype)
    tile[:, :, row, column] = table[tile_states(trellis, bits)]
    return tile.transpose(0, 2, 1, 3).reshape(16 * k_tiles, 16 * n_tiles)


@functools.cache
def hadamard_matrix() -> np.ndarray:
    """H / sqrt(128): entry (i, j) has the sign of the parity of popcount(i & j) (2.5)."""
    common = np.bitwise_and.outer(np.arange(HADAMARD_BLOCK), np.arange(HADAMARD_BLOCK))
    parity = np.zeros_like(common)
    for bit in range(7):
        parity ^= (common >> bit) & 1
    return (1.0 - 2.0 * parity) / np.sqrt(HADAMARD_BLOCK)


def hadamard_blocks(x: np.ndarray) -> np.ndarray:
    """x . Hb along the last axis: every block of 128 is transformed on its own (2.5)."""
    return (x.reshape(-1, HADAMARD_BLOCK) @ hadamard_matrix()).reshape(x.shape)


@dataclasses.dataclass(frozen=True)
class Exl3Matrix:
    """One EXL3 linear. `k_parts` splits its inputs for the integer path (row-cut matrices: 2)."""

    trellis: np.ndarray  # int16 [k / 16, n / 16, 16 bits]
    suh: np.ndarray  # float64 [k]
    svh: np.ndarray  # float64 [n]
    codebook: str
    k_parts: int = 1

    @property
    def bits(self) -> int:
        return self.trellis.shape[2] // 16

    @property
    def k(self) -> int:
        return 16 * self.trellis.shape[0]

    @property
    def n(self) -> int:
        return 16 * self.trellis.shape[1]

    def columns(self, begin: int, end: int) -> Exl3Matrix:
        """Output columns begin..end-1 (multiples of 128): the same matrix, cut (2.5)."""
        if begin % HADAMARD_BLOCK or end % HADAMARD_BLOCK:
            raise ValueError(f"columns {begin}..{end} are not whole Hadamard blocks")
        return dataclasses.replace(
            self,
            trellis=self.trellis[:, begin // 16 : end // 16],
            svh=self.svh[begin:end],
        )

    def dense(self) -> np.ndarray:
        """W [k, n] (2.5)."""
        inner = scatter_tiles(self.trellis, self.bits, codebook_table(self.codebook))
        right = hadamard_blocks(inner.astype(np.float64)) * self.svh
        return hadamard_blocks(right.T).T * self.suh[:, None]

    def integers(self) -> np.ndarray:
        """mul1's exact weights before the transforms, times 2^17, as float64 [k, n]."""
        if self.codebook != "mul1":
            raise ValueError(f"the integer path is mul1's, not {self.codebook}'s")
        return scatter_tiles(self.trellis, self.bits, integer_table())

    def halves(self) -> np.ndarray:
        """The fp16 weights before the transforms, as float64 [k, n]."""
        return scatter_tiles(self.trellis, self.bits, codebook_table(self.codebook)).astype(np.float64)

    def apply_half(self, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """y = x . W as mcg and 3INST matrices are multiplied, `weights` from halves(): activations
        rounded to fp16 after their transform, exact products and sums (2.5)."""
        rotated = hadamard_blocks(x * self.suh).astype(np.float16).astype(np.float64)
        return hadamard_blocks(rotated @ weights) * self.svh

    def apply_integer(self, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """y = x . W on the exact integer path (6.4a), `weights` from integers().

        Per row and per K part: r = Hb (x suh); amax = max|r|; v = rne(r 32258 / amax);
        y = svh * Hb ((amax / 32258) 2^-17 sum_k v_k w_k). The sums are exact: |v w| k < 2^53.
        """
        rotated = hadamard_blocks(x * self.suh)
        total = np.zeros(x.shape[:-1] + (self.n,))
        count = self.k // self.k_parts
        for part in (slice(begin, begin + count) for begin in range(0, self.k, count)):
            r = rotated[..., part]
            amax = np.max(np.abs(r), axis=-1, keepdims=True)
            scale = np.where(amax > 0, amax, 1.0)
            v = np.rint(r * (INTEGER_LIMIT / scale))
            total += (v @ weights[part]) * (amax / INTEGER_LIMIT * 2.0**-17)
        return hadamard_blocks(total) * self.svh


def read_matrix(tensors: dict[str, Tensor], prefix: str, k_parts: int = 1) -> Exl3Matrix:
    """The matrix under `prefix` (1.1): width from the trellis shape, codebook from the flags."""
    trellis = tensors[f"{prefix}.trellis"]
    if trellis.dtype != "I16" or len(trellis.shape) != 3:
        raise ValueError(f"{prefix}.trellis: expected I16 of rank 3, got {trellis.dtype}")
    k, n = 16 * trellis.shape[0], 16 * trellis.shape[1]
    if trellis.shape[2] % 16 or not 16 <= trellis.shape[2] <= 128:
        raise ValueError(f"{prefix}.trellis: {trellis.shape[2]} units a tile is no K of 1..8")
    if k % HADAMARD_BLOCK or n % HADAMARD_BLOCK:
        raise ValueError(f"{prefix}: {k} x {n} is not a multiple of 128")
    flags = [name for name in ("mcg", "mul1") if f"{prefix}.{name}" in tensors]
    if k % (k_parts * HADAMARD_BLOCK):
        raise ValueError(f"{prefix}: {k} inputs do not split into {k_parts} parts of whole blocks")
    if len(flags) == 2:
        raise ValueError(f"{prefix}: both codebook flags are present")
    suh, svh = tensors[f"{prefix}.suh"], tensors[f"{prefix}.svh"]
    for name, scales, count in (("suh", suh, k), ("svh", svh, n)):
        if scales.dtype != "F16" or scales.shape != (count,):
            raise ValueError(f"{prefix}.{name}: expected F16 [{count}], got {scales.shape}")
    codebook = flags[0] if flags else "3inst"
    return Exl3Matrix(np.asarray(trellis.data), suh.f64(), svh.f64(), codebook, k_parts)
