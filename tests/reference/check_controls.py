"""Negative controls: every deliberate mistake of controls.json must be caught by check_golden's
bounds.

For each entry the mistake is switched on, the rounds of its scope are compared exactly as
check_golden compares them, and the outcome must be the documented one: caught in every round whose
documented smallest movement exceeds a bound, or no check failing at all for what moves nothing. The
measured movements must also equal the documented ones to their printed digits, which shows that the
mistake built in here is the mistake meant there. Exit code 1 on any disagreement. Usage:
check_controls.py [GOLDEN_DIR]
"""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

import numpy as np

from check_golden import GOLDEN, Golden, operations, whole_rounds
from comparison import BOUNDS, absolute, relative
from drafter import Drafter, Results, RoundInput
from numerics import SETTINGS

# Entries that must pass every check: no mistake, one that is none here, and two that need far
# positions.
MOVES_NOTHING = frozenset(
    {("none", "all"), ("first_mix_mean", "all"), ("rope_power", "near"), ("rope_f64_angle", "near")}
)
# Mistakes that only these labels may show; everywhere else they show in base logits.
VISIBLE_ONLY_IN = {
    "markov0_missing": {"drafts unequal", "top2_ids unequal", "top2_values max", "markov_bias max"},
    "conf_postnorm": {"confidence abs"},
    "conf_produced_token": {"confidence abs"},
}
PRINTED_DIGITS = 6e-3  # three significant digits: half a unit of the last one is up to 5e-3


def in_scope(scope: str, item: RoundInput, window: int) -> bool:
    """The scopes of controls.json; every request but D starts at position 0."""
    filled = item.request == "D" or item.anchor_position >= window
    return {
        "all": True,
        "partial": not filled,
        "filled": filled,
        "near": item.request != "D",
        "far": item.request == "D",
    }[scope]


def movements(
    golden: Golden, setting: str, results: Results, rounds: list[RoundInput]
) -> dict[str, Any]:
    """What controls.json documents, measured on `results`."""
    base, confidence, routed, changed = [], [], [0.0], 0
    for item in rounds:
        ours, gold = results[item.name], golden.tensors[setting][item.name]
        base.append(relative(ours["base_logits"], gold["base_logits"]))
        confidence.append(absolute(ours["confidence"], gold["confidence"]))
        changed += int(np.sum(ours["drafts"] != gold["drafts"]))
        if "s0.routed" in gold:
            routed.append(relative(ours["s0.routed"], gold["s0.routed"]))
    summary = {
        name: {"min": min(values), "median": float(np.median(values)), "max": max(values)}
        for name, values in (("base_logits_rel", base), ("confidence_abs", confidence))
    }
    return summary | {"drafts_changed": changed, "s0_routed_rel_max": max(routed)}


def disagreements(measured: dict[str, Any], entry: dict[str, Any]) -> list[str]:
    """Documented figures that the measured ones do not reproduce."""
    wrong = []
    pairs = [("s0_routed_rel_max", measured["s0_routed_rel_max"], entry["s0_routed_rel_max"])]
    for name in ("base_logits_rel", "confidence_abs"):
        pairs += [(f"{name}.{key}", measured[name][key], entry[name][key]) for key in entry[name]]
    for name, got, want in pairs:
        if abs(got - want) > PRINTED_DIGITS * want:
            wrong.append(f"{name} is {got:.3g}, documented {want:.3g}")
    if measured["drafts_changed"] != entry["drafts_changed"]:
        wrong.append(f"{measured['drafts_changed']} drafts, documented {entry['drafts_changed']}")
    return wrong


def check_entry(golden: Golden, entry: dict[str, Any]) -> list[str]:
    """Problems with one entry; prints its line."""
    fault, scope, setting = entry["fault"], entry["scope"], entry["setting"]
    window = golden.weights.config.window
    rounds = [item for item in golden.rounds if in_scope(scope, item, window)]
    faults = [] if fault == "none" else [fault]
    drafter = Drafter.make(golden.weights, setting, faults)
    requests = {item.request for item in rounds}
    run = [item for item in golden.rounds if item.request in requests]
    results = drafter.run_rounds(run, golden.forced(setting))
    checks = whole_rounds(golden, setting, results, setting, rounds)
    caught = checks.failed_rounds & {item.name for item in rounds}
    labels = {line.label for line in checks.failures}

    problems = [] if len(rounds) == entry["rounds"] else [f"{len(rounds)} rounds in scope"]
    measured = movements(golden, setting, results, rounds)
    problems += disagreements(measured, entry)
    bounds = BOUNDS[setting]
    if (fault, scope) in MOVES_NOTHING:
        if labels:
            problems.append(f"must move nothing, but fails {sorted(labels)}")
    elif fault in VISIBLE_ONLY_IN:
        if not labels or labels - VISIBLE_ONLY_IN[fault]:
            problems.append(f"must fail in {VISIBLE_ONLY_IN[fault]}, fails in {labels}")
    elif "base_logits rel" not in labels:
        problems.append("not caught in the base logits")
    every = (
        entry["base_logits_rel"]["min"] > bounds.base_logits.limit
        or entry["confidence_abs"]["min"] > bounds.confidence.limit
    )
    if every and len(caught) != len(rounds):
        problems.append(f"caught in {len(caught)} of {len(rounds)} rounds only")
    base = measured["base_logits_rel"]
    print(
        f"{'FAIL' if problems else 'ok  '} {setting} {fault} ({scope}): caught in {len(caught)} of "
        f"{len(rounds)} rounds; base logits rel {base['min']:.3g} .. {base['median']:.3g} .. "
        f"{base['max']:.3g}, confidence abs up to {measured['confidence_abs']['max']:.3g}, "
        f"{measured['drafts_changed']} drafts changed" + "".join(f"; {p}" for p in problems)
    )
    return problems


def check_rounding(golden: Golden, place: str) -> bool:
    """Is it visible that a place is not rounded? K rows hold e4m3 values: exact in bf16 already."""
    failures = operations(golden, "bf16", "bf16", exact=(place,)).failures
    passed = bool(failures) != (place == "kv")
    worst = max((line.value for line in failures), default=0.0)
    print(
        f"{'ok  ' if passed else 'FAIL'} bf16 rounding place {place} left out: "
        f"{len(failures)} checks fail, worst {worst:.3g}"
    )
    return passed


def main(arguments: list[str]) -> int:
    folder = pathlib.Path(arguments[0]) if arguments else GOLDEN
    golden = Golden.load(folder)
    entries = json.loads((folder / "controls.json").read_text())["controls"]
    failed = sum(bool(check_entry(golden, entry)) for entry in entries)
    places = sorted(SETTINGS["bf16"].bf16_places)
    failed += sum(not check_rounding(golden, place) for place in places)
    print(f"check_controls: {failed} of {len(entries) + len(places)} entries failed")
    return 1 if failed or not entries else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
