"""Checks the EXL3 decode against the published vectors of the format note (2.6); exit code 1 on
failure.

Whole codebook tables, one tile of every width and codebook (states and decoded values), and a whole
linear: rotated input, inner product, output and entries of the dense form. Usage: check_exl3.py
"""

from __future__ import annotations

import sys

import numpy as np

from exl3 import (
    CODEBOOKS,
    Exl3Matrix,
    byte_sums,
    codebook_table,
    hadamard_blocks,
    integer_table,
    scatter_tiles,
    tile_states,
)

TABLE_FNV = {"3inst": 0xFAD431E7E9266898, "mcg": 0x7BB36B05A3B885A7, "mul1": 0x55E1C748ED9F0CD7}

# K: (states in position order, then row-major decoded halves of each codebook), seed 1.
TILE_FNV = {
    1: (0x23EC8A9318199A39, 0x89CCC1AF54BB6FCE, 0x38790A0D04D9F88D, 0x516215C37B833AF1),
    2: (0x5C316D7B8B42FF15, 0x73C5CB4D2268DFE8, 0xDF2011FFA5EDBAC3, 0x2C72AD27A7BD68B3),
    3: (0xA9D8B0FF3026E1C5, 0xF9E09DEE48F5883E, 0x24EBAD93132105F3, 0x6A200097C293DA31),
    4: (0xEE4817CE1ABE8F71, 0x597290A66AF0BD51, 0x2F4B3E46BF47A24E, 0x5A0003C5324528CC),
    5: (0x87DF981D97E9DA21, 0xB5963E7240FE55AA, 0xBFFF7CA273F62BAA, 0x45D619C32B95F372),
    6: (0x7D88D56345786D98, 0x4354D75CA4F355C8, 0x3A70467DF4B9257F, 0xD617F2EE4827FA9C),
    7: (0xEFA2CC0FE5DEB9B2, 0xB5F9D52DFDDD9B1C, 0x1A5964CB760BA54A, 0xD373858FC8ACBCA2),
    8: (0xD6E298ED27F771F9, 0x7C1A39D067A5A805, 0x8F370726973B79DC, 0x78B447EF3DDC88F6),
}

# Of the whole linear: the roundings of fp16 inputs to the inner product, and none at all.
ROTATED = (
    (0xB6D5, 0xBB31, 0xB9D2, 0x3BDC, 0xBBD0, 0x3AB7, 0x3DEB, 0xBE2B),
    (0xB97E, 0x4195, 0x311B, 0xB6AB, 0xBAC6, 0xAE17, 0xA9BA, 0x3A97),
)
INNER = (
    (-1.758739818, 0.535641021, -11.096060222, -9.601146108),
    (19.654718215, -24.921871736, -1.897964240, -18.152317943),
)
ROUNDED_Y = (
    (-13.02540141, -45.40420457, 3.16228974, -1.48729131)
    + (3.08476170, 3.68757767, 4.76528803, -20.48208172),
    (0.83532973, -20.20066518, -20.33241529, -8.20846389)
    + (19.95351129, -32.35852569, -9.95582586, -6.44523916),
)
EXACT_Y = (
    (-13.03690873, -45.39297567, 3.16694526, -1.49060832),
    (0.83690441, -20.20441863, -20.33928353, -8.21202855),
)
DENSE = {
    (0, 0): -0.898281756,
    (0, 1): 1.102452074,
    (0, 2): 2.283252063,
    (0, 3): -0.394689958,
    (1, 0): -0.351198509,
    (128, 0): -0.537003449,
    (255, 127): 0.574036487,
}
PRINTED = 6e-9  # half a unit of the last printed digit of y, and a little for summation order
INTEGER_REL = 4.5e-4  # the note's 0.03 % of output RMS, doubled for a sample of 256 values


def fnv1a(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def generated_units(seed: int, count: int) -> np.ndarray:
    """r = seed; each next r = r 1664525 + 1013904223 mod 2^32 gives r >> 16."""
    units = np.empty(count, dtype=np.uint16)
    state = seed
    for i in range(count):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        units[i] = state >> 16
    return units


def generated_scales(seed: int, count: int) -> np.ndarray:
    """0.75 + (u & 255) / 512, negative if u & 256."""
    units = generated_units(seed, count).astype(np.int64)
    return (0.75 + (units & 255) / 512) * np.where(units & 256, -1.0, 1.0)


class Tally:
    """Prints one line per check and counts the failures."""

    def __init__(self) -> None:
        self.failures = 0

    def require(self, label: str, passed: bool, detail: str = "") -> None:
        self.failures += not passed
        print(f"{'ok  ' if passed else 'FAIL'} {label} {detail}".rstrip())


def check_tables(tally: Tally) -> None:
    for codebook, want in TABLE_FNV.items():
        got = fnv1a(codebook_table(codebook).view("<u2").tobytes())
        tally.require(f"table {codebook}", got == want, f"{got:016x}")
    exact = integer_table() * 2.0**-17
    error = np.max(np.abs(exact - codebook_table("mul1").astype(np.float64)))
    tally.require(
        "mul1 (887 b - 452608) 2^-17 rounds to its table",
        bool(np.all(exact.astype(np.float16) == codebook_table("mul1"))),
        f"largest rounding {error:.3g}",
    )
    b = int(byte_sums()[0x1234])
    tally.require("mul1 byte sum of state 1234", b == 425, str(b))


def check_tiles(tally: Tally) -> None:
    for bits, (want_states, *want_tiles) in TILE_FNV.items():
        units = generated_units(1, 16 * bits).view(np.int16).reshape(1, 1, -1)
        states = tile_states(units, bits)
        tally.require(f"states K={bits}", fnv1a(states.astype("<u2").tobytes()) == want_states)
        for codebook, want in zip(CODEBOOKS, want_tiles):
            tile = scatter_tiles(units, bits, codebook_table(codebook))
            tally.require(f"tile K={bits} {codebook}", fnv1a(tile.view("<u2").tobytes()) == want)


def check_linear(tally: Tally) -> None:
    k, n = 256, 128
    units = generated_units(1, k // 16 * (n // 16) * 32).view(np.int16)
    trellis = units.reshape(k // 16, n // 16, 32)
    matrix = Exl3Matrix(trellis, generated_scales(2, k), generated_scales(3, n), "mul1", k_parts=2)
    x = ((generated_units(4, 2 * k).astype(np.int64) & 0x3FF) - 512) / 256.0
    x = x.reshape(2, k)

    rotated = hadamard_blocks((x * matrix.suh).astype(np.float16).astype(np.float64))
    halves = rotated.astype(np.float16)
    tally.require("rotated input", bool(np.all(halves.view("<u2")[:, :8] == np.array(ROTATED))))
    what = scatter_tiles(trellis, 2, codebook_table("mul1")).astype(np.float64)
    inner = halves.astype(np.float64) @ what
    tally.require("inner product", bool(np.allclose(inner[:, :4], INNER, rtol=0, atol=PRINTED)))
    rounded = hadamard_blocks(inner) * matrix.svh
    tally.require("output", bool(np.allclose(rounded[:, :8], ROUNDED_Y, rtol=0, atol=PRINTED)))

    dense = matrix.dense()
    wrong = [place for place, want in DENSE.items() if abs(dense[place] - want) > 6e-10]
    tally.require("dense entries", not wrong, str(wrong) if wrong else "")
    exact = x @ dense
    close = bool(np.allclose(exact[:, :4], EXACT_Y, rtol=0, atol=PRINTED))
    tally.require("unrounded output", close)

    integer = matrix.apply_integer(x, matrix.integers())
    error = float(np.linalg.norm(integer - exact) / np.linalg.norm(exact))
    tally.require("integer path", 0 < error < INTEGER_REL, f"rel {error:.3g}")
    columns = matrix.columns(0, 128)
    tally.require("column cut", bool(np.array_equal(columns.dense(), dense)))


def main() -> int:
    tally = Tally()
    check_tables(tally)
    check_tiles(tally)
    check_linear(tally)
    print(f"check_exl3: {tally.failures} checks failed")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
