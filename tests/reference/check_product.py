"""The C++ drafter on synthetic checkpoints against the float64 forward pass.

For every shape: synthesize a checkpoint, make inputs, let the drafter dump all intermediate tensors,
compare (compare_dump.py). Covers what the golden pack does not: arch v4, EXL3 slices of wo_a, the
other codebooks, F16 gate and Markov tensors, the fake quantization switched off.

usage: check_product.py BIN_DIR
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import compare_dump
from config import read_config
from numerics import f64_to_bf16_bits
from safetensors_io import Tensor, write_file

# Rows per insert: a partly filled window, single rows, more than the window.
INSERTS = {"A": (0, (3, 1, 2, 5)), "B": (0, (20, 2)), "C": (300000, (9, 4))}
CASES = [
    # shape, flags of dump_rounds, setting and one-operation bounds of compare_dump
    ("tiny", [], "product", "worker"),
    ("tiny", ["--no-fake-quant"], "product_nofq", "worker"),
    ("tiny-v4", [], "product", "worker"),
    ("tiny-v4", ["--no-fake-quant"], "product_nofq", "worker"),
    ("tiny-mixed", [], "product", "worker_half"),
]


def make_inputs(model: pathlib.Path, path: pathlib.Path) -> None:
    """Requests of INSERTS with random taps and anchors."""
    config = read_config(model)
    rng = np.random.default_rng(11)
    tensors: dict[str, Tensor] = {}
    for request, (start, counts) in INSERTS.items():
        rows = sum(counts)
        taps = rng.normal(size=(rows, config.taps * config.dim))
        anchors = rng.integers(0, config.vocab, len(counts))
        tensors[f"{request}.taps"] = Tensor("BF16", f64_to_bf16_bits(taps))
        for name, values in (
            ("positions", start + np.arange(rows)),
            ("insert_rows", counts),
            ("anchors", anchors),
        ):
            tensors[f"{request}.{name}"] = Tensor("I32", np.asarray(values, dtype=np.int32))
    write_file(path, tensors)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    binaries = pathlib.Path(arguments[0])
    failures = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for shape, flags, setting, operations in CASES:
            model, inputs, dump = folder / shape, folder / "inputs.safetensors", folder / "dump.safetensors"
            if not model.exists():
                pack = [binaries / "dspark-pack", "synth", "--shape", shape, "--seed", "5"]
                subprocess.run([*pack, "--out", model, "--quiet"], check=True)
            make_inputs(model, inputs)
            subprocess.run([binaries / "dump_rounds", model, inputs, dump, *flags], check=True)
            print(f"== {shape} {' '.join(flags)}")
            command = [str(model), str(inputs), str(dump), "--setting", setting, "--operations", operations]
            failures += compare_dump.main(command) != 0
    print(f"check_product: {failures} of {len(CASES)} cases failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
