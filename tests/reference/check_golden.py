"""Checks the float64 forward pass against DeepSeek's golden vectors; exit code 1 on any failure.

For each setting: whole rounds (everything computed from taps and anchors) and one operation at a
time (every operation fed golden inputs), with the bounds the golden README recommends; the same for
the exact integer path of EXL3. Usage: check_golden.py [GOLDEN_DIR]
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import sys

import numpy as np

from comparison import BOUNDS, Checks, compare_round, finish_rounds
from drafter import Drafter, Results, RoundInput, Tensors, read_rounds
from numerics import SETTINGS
from operations import compare_operations, one_operation
from safetensors_io import Tensor, read_file
from weights import Weights

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden" / "v41-tiny"


@dataclasses.dataclass(frozen=True)
class Golden:
    """The golden folder: checkpoint, rounds, and each setting's tensors by round."""

    weights: Weights
    rounds: list[RoundInput]
    tensors: dict[str, Results]
    full: dict[str, set[str]]  # setting -> rounds with every intermediate

    @classmethod
    def load(cls, folder: pathlib.Path) -> Golden:
        settings = ("f32", "f32_fq", "bf16")
        described = json.loads((folder / "rounds.json").read_text())["rounds"]
        return cls(
            Weights.load(folder),
            read_rounds(read_file(folder / "inputs.safetensors")),
            {s: by_round(read_file(folder / f"golden_{s}.safetensors")) for s in settings},
            {s: {item["name"] for item in described if item["full"][s]} for s in settings},
        )

    def markov_bias(self, fed: np.ndarray) -> np.ndarray:
        return Drafter.make(self.weights).stages.markov_bias(fed)

    def forced(self, setting: str) -> Tensors:
        """The golden drafts, fed to the Markov and confidence heads of either side."""
        return {
            name: tensors["drafts"].astype(np.int64)
            for name, tensors in self.tensors[setting].items()
        }


def by_round(tensors: dict[str, Tensor]) -> Results:
    """{"A.0.s1.q": ..} as {"A.0": {"s1.q": ..}}, widened."""
    results: Results = {}
    for name, tensor in tensors.items():
        request, number, rest = name.split(".", 2)
        results.setdefault(f"{request}.{number}", {})[rest] = tensor.f64()
    return results


def whole_rounds(
    golden: Golden, setting: str, results: Results, bounds_name: str, rounds: list[RoundInput]
) -> Checks:
    """Compares `results` of the given rounds with the golden ones of a setting."""
    checks, bounds = Checks(), BOUNDS[bounds_name]
    for item in rounds:
        ours, gold = results[item.name], golden.tensors[setting][item.name]
        fed = np.concatenate([[item.anchor], gold["drafts"][:-1]]).astype(np.int64)
        bias = golden.markov_bias(fed)
        compare_round(checks, bounds, ours, gold, bias, golden.weights.stages, item.name)
    finish_rounds(checks, bounds, len(rounds))
    return checks


def operations(
    golden: Golden, setting: str, kind: str, integer_path: bool = False, exact: tuple[str, ...] = ()
) -> Checks:
    """One operation at a time on a setting's full rounds; `exact` places are left unrounded."""
    checks = Checks()
    rounding = SETTINGS[setting].without(*exact)
    drafter = Drafter.make(golden.weights, rounding, integer_path=integer_path)
    for item in golden.rounds:
        if item.name in golden.full[setting]:
            gold = golden.tensors[setting][item.name]
            ours = one_operation(drafter, item, gold)
            skipped = compare_operations(checks, kind, ours, gold, item.name)
            checks.add("tensors not compared", skipped, 0, item.name)
    return checks


def main(arguments: list[str]) -> int:
    golden = Golden.load(pathlib.Path(arguments[0]) if arguments else GOLDEN)
    failures = 0
    runs = [("f32", "f32", False), ("f32_fq", "f32_fq", False), ("bf16", "bf16", False)]
    for setting, bounds_name, integer_path in runs + [("f32", "integer", True)]:
        drafter = Drafter.make(golden.weights, setting, integer_path=integer_path)
        results = drafter.run_rounds(golden.rounds, golden.forced(setting))
        checks = whole_rounds(golden, setting, results, bounds_name, golden.rounds)
        checks.print(f"[{bounds_name} against {setting}, whole rounds]")
        failures += len(checks.failures)
    for setting, kind, integer_path in (
        ("f32", "f32", False),
        ("f32_fq", "f32", False),
        ("bf16", "bf16", False),
        ("f32", "integer", True),
        ("bf16", "integer_bf16", True),
    ):
        checks = operations(golden, setting, kind, integer_path)
        checks.print(f"[{kind} against {setting}, one operation]")
        failures += len(checks.failures)
    print(f"check_golden: {failures} checks failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
