"""Compares a run's dump with the float64 forward pass on any checkpoint; exit code 1 on a
difference.

Whole rounds: everything recomputed from the inputs, with bounds that allow for what rounding does
to a whole pass. One operation at a time: every operation recomputed from the dump's own inputs to
it, with bounds of single roundings; run for every operation whose inputs and result the dump holds.
Tensor names and meanings are those of the golden files (rounds.json, "tensors"); the heads' tensors
may have fewer than `block` rows. Exit code 2: the files do not belong together.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import sys

import numpy as np

from comparison import (
    BOUNDS,
    EVERY_ROUND,
    FINAL_ORDER,
    STAGE_ORDER,
    Checks,
    compare_round,
    finish_rounds,
)
from drafter import Drafter, Results, RoundInput, Tensors, read_rounds
from numerics import PLACES, SETTINGS, Rounding
from operations import compare_operations, one_operation
from safetensors_io import FormatError, Tensor, read_file
from weights import Weights

HEAD_TENSORS = frozenset(FINAL_ORDER) - {"collapse", "hidden"}


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a setting compares with: bounds of whole rounds, kind of one-operation bounds."""

    bounds: str
    operations: str | None
    integer_path: bool


PLANS: dict[str, Plan] = {
    # What the worker does: the integer path, 16-bit streams, sums and ring; with or without the
    # fake quantization of K rows.
    "product": Plan("worker", "worker", True),
    "product_nofq": Plan("worker", "worker", True),
    # Exact arithmetic. A worker's 16-bit places are not operations of these, so whole rounds only.
    "f32": Plan("worker_exact", None, False),
    "f32_fq": Plan("worker_exact", None, False),
}


def split_dump(tensors: dict[str, Tensor], stages: int) -> Results:
    """The dump by round; an unknown name is an error, since it would never be compared."""
    known = {"main_x", *FINAL_ORDER}
    known |= {f"s{s}.{name}" for s in range(stages) for name in ["ring", *STAGE_ORDER]}
    results: Results = {}
    for name, tensor in tensors.items():
        parts = name.split(".", 2)
        if len(parts) < 3 or parts[2] not in known:
            raise FormatError(f"dump: {name} is no tensor of a round")
        results.setdefault(f"{parts[0]}.{parts[1]}", {})[parts[2]] = tensor.f64()
    return results


def require_rounds(dump: Results, rounds: list[RoundInput], block: int) -> None:
    """Every round of the inputs must be there, with what every comparison needs, and no other."""
    names = {item.name for item in rounds}
    if names != set(dump):
        raise FormatError(f"dump: rounds {sorted(names ^ set(dump))} are on one side only")
    for name, tensors in dump.items():
        missing = EVERY_ROUND - set(tensors)
        if missing:
            raise FormatError(f"dump: {name} lacks {sorted(missing)}")
        rows = len(tensors["drafts"])
        wrong = [
            key
            for key in FINAL_ORDER
            if key in tensors
            and len(tensors[key]) != rows
            and (key in HEAD_TENSORS or len(tensors[key]) != block)
        ]
        if wrong or not 1 <= rows <= block:
            raise FormatError(f"dump: {name}: {rows} drafts, other row counts in {wrong}")


def padded_drafts(dump: Tensors, block: int) -> np.ndarray:
    """The fed tokens of a whole block; rows past the dump's are never compared."""
    drafts = dump["drafts"].astype(np.int64)
    return np.concatenate([drafts, np.zeros(block - len(drafts), dtype=np.int64)])


def cut_rows(tensors: Tensors, like: Tensors) -> Tensors:
    """`tensors` with as many rows of the final tensors as `like` has (n_out may be under block)."""
    return {
        name: t[: len(like[name])] if name in FINAL_ORDER and name in like else t
        for name, t in tensors.items()
    }


def compare(
    weights: Weights,
    rounds: list[RoundInput],
    dump: Results,
    rounding: Rounding,
    plan: Plan,
) -> list[tuple[str, Checks]]:
    """(title, checks) of the whole rounds and, where the setting has them, of single operations."""
    block = weights.config.block
    bounds = BOUNDS[plan.bounds]
    drafter = Drafter.make(weights, rounding, integer_path=plan.integer_path)
    forced = {name: padded_drafts(tensors, block) for name, tensors in dump.items()}
    for name, tokens in forced.items():
        if tokens.min() < 0 or tokens.max() >= weights.config.vocab:
            raise FormatError(f"dump: {name}.drafts holds an id outside the vocabulary")
    results = drafter.run_rounds(rounds, forced)
    whole, single = Checks(), Checks()
    for item in rounds:
        tested = dump[item.name]
        trusted = cut_rows(results[item.name], tested)
        bias = trusted["markov_bias"]
        compare_round(whole, bounds, tested, trusted, bias, weights.stages, item.name)
        if plan.operations is not None:
            ours = cut_rows(one_operation(drafter, item, tested), tested)
            compare_operations(single, plan.operations, ours, tested, item.name)
    finish_rounds(whole, bounds, len(rounds))
    outcome = [(f"{rounding.name}, bounds {plan.bounds}, whole rounds", whole)]
    if plan.operations is not None:
        outcome.append((f"{rounding.name}, bounds {plan.operations}, one operation", single))
    return outcome


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model_dir", type=pathlib.Path)
    parser.add_argument("inputs", type=pathlib.Path)
    parser.add_argument("dump", type=pathlib.Path)
    parser.add_argument(
        "--setting",
        choices=sorted(PLANS),
        default="product",
        help="arithmetic of the float64 side (product: rounds where the worker stores 16 bits)",
    )
    parser.add_argument(
        "--bounds",
        choices=sorted(set(BOUNDS) - {"bf16"}),
        help="whole rounds: instead of the usual",
    )
    parser.add_argument(
        "--operations",
        choices=("f32", "integer", "worker", "worker_half", "none"),
        help="one operation at a time: instead of the usual",
    )
    parser.add_argument(
        "--integer-path",
        action=argparse.BooleanOptionalAction,
        help="quantize activations to 15 bits in mul1 matrices on the float64 side too",
    )
    parser.add_argument(
        "--exact",
        action="append",
        default=[],
        choices=sorted(PLACES),
        metavar="PLACE",
        help="do not round to bf16 here though the setting does (repeatable): " + " ".join(PLACES),
    )
    return parser.parse_args(arguments)


def chosen_plan(options: argparse.Namespace) -> Plan:
    plan = PLANS[options.setting]
    if options.bounds is not None:
        plan = dataclasses.replace(plan, bounds=options.bounds)
    if options.operations is not None:
        kind = None if options.operations == "none" else options.operations
        plan = dataclasses.replace(plan, operations=kind)
    if options.integer_path is not None:
        plan = dataclasses.replace(plan, integer_path=options.integer_path)
    return plan


def main(arguments: list[str]) -> int:
    options = parse_arguments(arguments)
    try:
        weights = Weights.load(options.model_dir)
        rounds = read_rounds(read_file(options.inputs))
        dump = split_dump(read_file(options.dump), weights.stages)
        require_rounds(dump, rounds, weights.config.block)
        rounding = SETTINGS[options.setting].without(*options.exact)
        outcome = compare(weights, rounds, dump, rounding, chosen_plan(options))
    except (OSError, KeyError, ValueError) as error:
        print(f"compare_dump: {error}", file=sys.stderr)
        return 2
    failures = 0
    for title, checks in outcome:
        checks.print(f"[{title}]")
        failures += len(checks.failures)
    print(f"compare_dump: {failures} checks failed over {len(rounds)} rounds")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
