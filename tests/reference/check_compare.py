"""Checks compare_dump itself, and what the golden checkpoint cannot show; exit code 1 on failure.

Dumps are made by the forward pass with fp32 roundings everywhere, which is how a correct worker
differs from float64. They must pass on every variant of the checkpoint; with a deliberate mistake
switched on they must fail, also when the mistake is far too small for whole rounds. The parts of
arch v4 that have no golden vectors are checked against what they are made of. Usage:
check_compare.py [GOLDEN_DIR]
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import pathlib
import sys
import tempfile

import numpy as np

import compare_dump
from check_exl3 import Tally
from check_golden import GOLDEN
from drafter import Drafter, Results, RoundInput, read_rounds
from numerics import SETTINGS, round_e4m3
from safetensors_io import Tensor, read_file, write_file
from variants import as_bf16, as_mixed, as_v4, read_golden, write_folder
from weights import Weights

# The first three move whole rounds by less than their bounds: only single operations show them.
FAULTS = {
    "v41": (
        "sinkhorn19",
        "rope_power",
        "rope_f64_angle",
        "conf_produced_token",
        "window_old",
        "comb_T",
    ),
    "v4": ("sinkhorn19", "causal", "fq_none", "scale_block_T"),
    "mixed": ("swap_suh", "no_shared", "markov0_missing"),
}
BF16_IN_DUMP = ("streams", "streams_attn", "attn_out", "ffn_out", "ring")


def some_rounds(rounds: list[RoundInput]) -> list[RoundInput]:
    """A window that fills up and wraps, and far positions."""
    return [item for item in rounds if item.name in ("A.0", "A.1", "A.2", "A.3", "D.0", "D.1")]


def fp32_dump(weights: Weights, rounds: list[RoundInput], *faults: str) -> Results:
    rounding = dataclasses.replace(SETTINGS["product"], f32_elsewhere=True)
    return Drafter.make(weights, rounding, faults, integer_path=True).run_rounds(rounds)


def passes(weights: Weights, rounds: list[RoundInput], dump: Results, setting: str) -> bool:
    plan = compare_dump.PLANS[setting]
    outcome = compare_dump.compare(weights, rounds, dump, SETTINGS[setting], plan)
    return not any(checks.failures for _, checks in outcome)


def check_variant(tally: Tally, name: str, weights: Weights, rounds: list[RoundInput]) -> None:
    dump = fp32_dump(weights, rounds)
    for setting in ("product", "f32_fq"):
        passed = passes(weights, rounds, dump, setting)
        tally.require(f"{name}: a correct dump passes ({setting})", passed)
    for fault in FAULTS[name]:
        wrong = fp32_dump(weights, rounds, fault)
        tally.require(f"{name}: {fault} is caught", not passes(weights, rounds, wrong, "product"))


def write_dump(path: pathlib.Path, results: Results, rows: int) -> None:
    """A dump as a worker would write it, with `rows` draft rows."""
    tensors: dict[str, Tensor] = {}
    for round_name, values in results.items():
        for name, value in values.items():
            label = name.rpartition(".")[2]
            if name in compare_dump.HEAD_TENSORS or name == "hidden":
                value = value[:rows]
            if value.dtype.kind == "i":
                tensor = Tensor("I32", value.astype(np.int32))
            elif label in BF16_IN_DUMP:
                tensor = as_bf16(value)
            else:
                tensor = Tensor("F32", value.astype(np.float32))
            tensors[f"{round_name}.{name}"] = tensor
    write_file(path, tensors)


def write_inputs(path: pathlib.Path, rounds: list[RoundInput]) -> None:
    tensors: dict[str, Tensor] = {}
    for request in sorted({item.request for item in rounds}):
        items = [item for item in rounds if item.request == request]
        tensors[f"{request}.taps"] = as_bf16(np.concatenate([item.taps for item in items]))
        for name, values in (
            ("positions", np.concatenate([item.positions for item in items])),
            ("insert_rows", [len(item.taps) for item in items]),
            ("anchors", [item.anchor for item in items]),
        ):
            tensors[f"{request}.{name}"] = Tensor("I32", np.array(values, dtype=np.int32))
    write_file(path, tensors)


def check_files(
    tally: Tally,
    folder: pathlib.Path,
    weights: Weights,
    model: pathlib.Path,
    rounds: list[RoundInput],
) -> None:
    """The command itself on files: exit codes 0, 1 and 2, and a dump with three draft rows."""
    write_inputs(folder / "inputs.safetensors", rounds)
    dump = fp32_dump(weights, rounds)

    def exit_code(results: Results, rows: int) -> int:
        write_dump(folder / "dump.safetensors", results, rows)
        files = [str(folder / "inputs.safetensors"), str(folder / "dump.safetensors")]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return compare_dump.main([str(model), *files])

    tally.require("command: a correct dump is exit code 0", exit_code(dump, 5) == 0)
    tally.require("command: three draft rows are exit code 0", exit_code(dump, 3) == 0)
    for name, change in (
        ("a draft that is not the best id", lambda t: t["drafts"].__setitem__(1, 3)),
        ("one wrong base logit", lambda t: t["base_logits"].__setitem__((2, 5), 1e3)),
        ("one NaN in a stream", lambda t: t["s1.streams"].__setitem__((0, 0, 0), np.nan)),
    ):
        broken = {key: {n: v.copy() for n, v in tensors.items()} for key, tensors in dump.items()}
        change(broken["A.1"])
        tally.require(f"command: {name} is exit code 1", exit_code(broken, 5) == 1)
    short = {key: dict(tensors) for key, tensors in dump.items()}
    del short["A.2"]["confidence"]
    tally.require("command: a missing tensor is exit code 2", exit_code(short, 5) == 2)
    short = {key: tensors for key, tensors in dump.items() if key != "A.3"}
    tally.require("command: a missing round is exit code 2", exit_code(short, 5) == 2)


def check_v4_stages(
    tally: Tally, v41: Weights, v4: Weights, rounds: list[RoundInput]
) -> None:
    """V4's stages are V4.1's with the query norm and its own pre-mix; then the learned collapse."""
    ours = Drafter.make(v4, "f32").run_rounds(rounds)
    wanted = Drafter.make(v41, "f32", ["v4_query_norm", "own_pre"]).run_rounds(rounds)
    last = f"s{v41.stages - 1}.streams"
    same = all(np.array_equal(ours[name][last], wanted[name][last]) for name in ours)
    tally.require("v4: streams equal v41 with query norm and own pre-mix", same)

    h = ours["A.3"][last]
    fn, base, scale = (v4.f64(f"mtp.2.hc_head_{part}") for part in ("fn", "base", "scale"))
    worst = 0.0
    for row, streams in enumerate(h):
        flat = [float(v) for stream in streams for v in stream]
        root = (sum(v * v for v in flat) / len(flat) + v4.config.norm_eps) ** 0.5
        expected = np.zeros(v4.config.dim)
        for i, stream in enumerate(streams):
            logit = sum(float(w) * v for w, v in zip(fn[i], flat)) / root
            weight = 1 / (1 + np.exp(-(logit * scale[0] + base[i]))) + v4.config.hc_eps
            expected += weight * stream
        worst = max(worst, float(np.max(np.abs(expected - ours["A.3"]["collapse"][row]))))
    tally.require("v4: collapse is the learned one", worst < 1e-12, f"{worst:.3g}")


def check_v4_rows(tally: Tally, v4: Weights, rounds: list[RoundInput]) -> None:
    """K rows of V4 and its wide wo_a scales."""
    config = v4.config
    row = Drafter.make(v4, "f32_fq").run_rounds(rounds)["A.3"]["s0.ring"]
    plain = Drafter.make(v4, "f32").run_rounds(rounds)["A.3"]["s0.ring"]
    rotated, group = slice(-config.rope_dim, None), slice(0, 64)
    same = np.array_equal(row[:, rotated], plain[:, rotated])
    tally.require("v4: RoPE dims are not quantized", same)
    top = np.max(np.abs(plain[:, group]), axis=1, keepdims=True)
    step = 2.0 ** np.ceil(np.log2(top / 448.0))
    expected = round_e4m3(plain[:, group] / step) * step
    tally.require("v4: groups of 64 share a scale", np.array_equal(row[:, group], expected))

    weight = v4.wo_a_fp8("mtp.1.attn.wo_a", scale_transposed=False)
    codes = v4.tensors["mtp.1.attn.wo_a.weight"].f64()
    blocks = v4.tensors["mtp.1.attn.wo_a.scale"].f64()
    spot = all(
        weight[r, c] == codes[r, c] * blocks[r // 128, c // 128]
        for r, c in ((0, 0), (127, 128), (128, 127), (255, 255), (40, 200))
    )
    tally.require("v4: wo_a scales are per 128 x 128", bool(spot) and blocks.shape == (2, 2))


def main(arguments: list[str]) -> int:
    golden_folder = pathlib.Path(arguments[0]) if arguments else GOLDEN
    tally = Tally()
    golden = read_golden(golden_folder)
    rounds = some_rounds(read_rounds(read_file(golden_folder / "inputs.safetensors")))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        loaded = {"v41": Weights.load(golden_folder)}
        for variant, content in (("v4", as_v4(golden)), ("mixed", as_mixed(golden))):
            write_folder(folder / variant, content)
            loaded[variant] = Weights.load(folder / variant)
        for variant, weights in loaded.items():
            check_variant(tally, variant, weights, rounds)
        write_folder(folder / "v4_like", as_v4(golden, norm_eps=1e-20, wide_scales=False))
        check_v4_stages(tally, loaded["v41"], Weights.load(folder / "v4_like"), rounds)
        check_v4_rows(tally, loaded["v4"], rounds)
        check_files(tally, folder, loaded["v4"], folder / "v4", rounds[:4])
    print(f"check_compare: {tally.failures} checks failed")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
