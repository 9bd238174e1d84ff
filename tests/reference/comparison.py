"""Bounds and the comparison of two runs, tensor by tensor and round by round.

Measures: rel = ||x - y|| / ||y||, max = max|x - y| / max|y|, both of one tensor, y the trusted
side. The named bounds are the rows of the golden README; where that is silent the comment here says
why.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

STAGE_ORDER = (
    "attn_pre attn_post attn_comb attn_in qr q k_block o z attn_out streams_attn "
    "ffn_pre ffn_post ffn_comb ffn_in router_logits route_ids route_margin route_weights "
    "routed shared ffn_out streams"
).split()
FINAL_ORDER = (
    "collapse hidden base_logits markov_bias top2_values top2_ids drafts confidence"
).split()
LEFT_OUT_SHARE = 0.1  # of the rounds may end early after a tolerated change of experts
EVERY_ROUND = frozenset({"base_logits", "confidence", "drafts"})


def relative(x: np.ndarray, y: np.ndarray) -> float:
    """NaN on either side counts as an infinite difference, so that no bound can accept it."""
    top, bottom = float(np.linalg.norm(x - y)), float(np.linalg.norm(y))
    return _finite(top / bottom if bottom > 0 else (0.0 if top == 0 else np.inf))


def maximal(x: np.ndarray, y: np.ndarray) -> float:
    top, bottom = float(np.max(np.abs(x - y))), float(np.max(np.abs(y)))
    return _finite(top / bottom if bottom > 0 else (0.0 if top == 0 else np.inf))


def absolute(x: np.ndarray, y: np.ndarray) -> float:
    return _finite(float(np.max(np.abs(x - y))))


def _finite(value: float) -> float:
    return value if np.isfinite(value) else np.inf


def unequal(x: np.ndarray, y: np.ndarray) -> float:
    """The share of values that differ."""
    return float(np.mean(x != y))


MEASURES = {"rel": relative, "max": maximal, "abs": absolute, "unequal": unequal}


@dataclasses.dataclass(frozen=True)
class Bound:
    measure: str
    limit: float


@dataclasses.dataclass(frozen=True)
class Bounds:
    """Limits of one kind of comparison; None for ring or k_block means equal values."""

    base_logits: Bound
    confidence: Bound
    main_x: Bound
    ring: Bound | None
    k_block: Bound | None
    other: Bound
    route_margin: float  # absolute: a margin is a difference of two values of order one
    markov_bias: Bound = Bound("max", 3e-7)
    base_median: float | None = None
    # Experts may change where the margin is at most this (None: never) ...
    route_limit: float | None = None
    # ... and, if set, at most twice the error seen in the other rows of that stage.
    route_observed: bool = False
    near_ties: bool = False  # ids may differ within twice the round's largest logit error

    def of(self, label: str) -> Bound | None:
        own = {
            "base_logits": self.base_logits,
            "confidence": self.confidence,
            "main_x": self.main_x,
            "ring": self.ring,
            "k_block": self.k_block,
            "markov_bias": self.markov_bias,
            "route_margin": Bound("abs", self.route_margin),
            "top2_values": Bound("max", self.base_logits.limit),
        }
        return own.get(label, self.other)


BOUNDS: dict[str, Bounds] = {
    "f32": Bounds(
        base_logits=Bound("rel", 6e-6),
        confidence=Bound("abs", 4e-5),
        main_x=Bound("max", 3e-6),
        ring=Bound("max", 3e-6),
        k_block=Bound("max", 9e-6),
        other=Bound("max", 9e-6),
        route_margin=3e-5,  # a difference of sums of about 1: three times the measured error
    ),
    # Confidence, margins: three times what the value on an e4m3 rounding boundary moves them.
    "f32_fq": Bounds(
        base_logits=Bound("rel", 5e-4),
        base_median=6e-6,
        confidence=Bound("abs", 2.7e-3),
        main_x=Bound("max", 3e-6),
        ring=None,
        k_block=None,
        other=Bound("max", 9e-6),
        route_margin=9e-4,
        near_ties=True,
    ),
    "bf16": Bounds(
        base_logits=Bound("rel", 3e-2),
        confidence=Bound("rel", 6e-2),
        main_x=Bound("rel", 4e-2),
        ring=Bound("rel", 4e-2),
        k_block=Bound("rel", 4e-2),
        other=Bound("rel", 4e-2),
        route_margin=6e-2,
        route_limit=0.01,
        near_ties=True,
    ),
    # The integer path of EXL3, everything else exact, against exact arithmetic.
    "integer": Bounds(
        base_logits=Bound("rel", 4e-3),
        confidence=Bound("abs", 4e-2),
        main_x=Bound("max", 8e-3),
        ring=Bound("max", 8e-3),
        k_block=Bound("max", 8e-3),
        other=Bound("max", 8e-3),
        route_margin=8e-3,
        route_limit=8e-3,
        route_observed=True,
        near_ties=True,
    ),
    # The worker (integer path, 16-bit streams, sums and ring) against float64 with the same
    # integers and 16-bit places: about three times what fp32 arithmetic moves (README, "Figures").
    "worker": Bounds(
        base_logits=Bound("rel", 1.5e-2),
        confidence=Bound("rel", 5e-2),
        main_x=Bound("max", 2e-5),
        ring=Bound("rel", 6e-3),
        k_block=Bound("rel", 4e-2),
        other=Bound("rel", 2.5e-2),
        route_margin=2e-2,
        markov_bias=Bound("rel", 1.5e-3),  # a bias on a rounding boundary of bf16
        route_limit=2e-2,
        route_observed=True,
        near_ties=True,
    ),
    # The worker against exact arithmetic, nothing in 16 bits but taps, weights and (f32_fq) K rows.
    "worker_exact": Bounds(
        base_logits=Bound("rel", 5e-2),
        confidence=Bound("rel", 1.5e-1),
        main_x=Bound("max", 8e-3),
        ring=Bound("rel", 2.5e-2),
        k_block=Bound("rel", 1e-1),
        other=Bound("rel", 8e-2),
        route_margin=6e-2,
        markov_bias=Bound("rel", 4e-3),  # cached rows are bf16
        route_limit=2e-2,
        route_observed=True,
        near_ties=True,
    ),
}


@dataclasses.dataclass
class Line:
    """One printed check: the worst value seen under a label."""

    label: str
    value: float
    limit: float
    where: str
    values: list[float] = dataclasses.field(default_factory=list)

    @property
    def passed(self) -> bool:
        return self.value <= self.limit

    def text(self) -> str:
        word = "ok  " if self.passed else "FAIL"
        return (
            f"{word} {self.label}: worst {self.value:.3g}, bound {self.limit:.3g} "
            f"({self.where}; {len(self.values)} compared)"
        )


@dataclasses.dataclass
class Checks:
    """Collects checks; a label's line keeps the value that is worst for its bound."""

    lines: dict[str, Line] = dataclasses.field(default_factory=dict)
    failed_rounds: set[str] = dataclasses.field(default_factory=set)
    left_out: list[str] = dataclasses.field(default_factory=list)

    def add(self, label: str, value: float, limit: float, where: str) -> bool:
        line = self.lines.setdefault(label, Line(label, value, limit, where))
        line.values.append(value)
        if value > line.value:
            line.value, line.where = value, where
        if value > limit:
            self.failed_rounds.add(where)
        return value <= limit

    def measure(self, label: str, bound: Bound, x: np.ndarray, y: np.ndarray, where: str) -> bool:
        """Compares x with the trusted y; a shape that differs is an infinite difference."""
        same = x.shape == y.shape
        value = MEASURES[bound.measure](x, y) if same else np.inf
        return self.add(f"{label} {bound.measure}", value, bound.limit, where)

    def equal(self, label: str, wrong: int, where: str) -> bool:
        return self.add(f"{label} unequal", float(wrong), 0.0, where)

    @property
    def failures(self) -> list[Line]:
        return [line for line in self.lines.values() if not line.passed]

    def print(self, prefix: str) -> None:
        for line in self.lines.values():
            print(f"{line.text()[:5]}{prefix} {line.text()[5:]}")
        if self.left_out:
            print(f"note {prefix} left out after a tolerated expert change: {self.left_out}")


Tensors = Mapping[str, np.ndarray]


def _sorted_route(tensors: Tensors, prefix: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Chosen experts in ascending id (their order carries no meaning) with their weights."""
    order = np.argsort(tensors[f"{prefix}.route_ids"], axis=1, kind="stable")
    ids = np.take_along_axis(tensors[f"{prefix}.route_ids"], order, axis=1)
    weights = tensors.get(f"{prefix}.route_weights")
    return ids, None if weights is None else np.take_along_axis(weights, order, axis=1)


def _route_changed(
    checks: Checks, bounds: Bounds, prefix: str, tested: Tensors, trusted: Tensors, where: str
) -> bool:
    """Compares the chosen experts; True if a tolerated change ends this round's comparison."""
    ids, _ = _sorted_route(tested, prefix)
    wanted, _ = _sorted_route(trusted, prefix)
    if ids.shape != wanted.shape:
        checks.equal("experts", max(ids.size, 1), where)
        return True
    changed = np.any(ids != wanted, axis=1)
    limit = bounds.route_limit
    if limit is not None and bounds.route_observed and not changed.all():
        names = (f"{prefix}.route_margin", f"{prefix}.router_logits")
        seen = [
            np.max(np.abs(tested[name] - trusted[name])[~changed])
            for name in names
            if name in tested and name in trusted
        ]
        limit = min(limit, 2 * max(seen, default=0.0))
    margin = trusted[f"{prefix}.route_margin"]
    bad = changed if limit is None else changed & (margin > limit)
    checks.equal("experts", int(bad.sum()), where)
    tolerated = bool(changed.any() and not bad.any())
    if tolerated:
        checks.left_out.append(where)
    return tolerated


def compare_choices(
    checks: Checks, bounds: Bounds, tested: Tensors, trusted: Tensors, bias: np.ndarray, where: str
) -> None:
    """Drafts and top-2 ids under the same fed tokens: equal, or a near-tie where that is allowed.

    A near-tie: the trusted score of the tested choice lies within twice the round's largest logit
    error of the trusted score of the trusted choice.
    """
    rows = len(trusted["base_logits"])
    scores = trusted["base_logits"] + bias[:rows]
    error = absolute(tested["base_logits"], trusted["base_logits"])
    slack = 2 * error if bounds.near_ties else 0.0
    for name in ("drafts", "top2_ids"):
        if name not in tested or name not in trusted:
            continue
        got = tested[name].reshape(rows, -1).astype(np.int64)
        want = trusted[name].reshape(rows, -1).astype(np.int64)
        if got.shape != want.shape or got.min() < 0 or got.max() >= scores.shape[1]:
            checks.equal(name, max(got.size, 1), where)
            continue
        lost = np.take_along_axis(scores, want, 1) - np.take_along_axis(scores, got, 1)
        checks.equal(name, int(np.sum((got != want) & ~(lost <= slack))), where)


def compare_round(
    checks: Checks,
    bounds: Bounds,
    tested: Tensors,
    trusted: Tensors,
    bias: np.ndarray,
    stages: int,
    where: str,
) -> None:
    """Every tensor both sides have, in the order of computation.

    Both sides must have fed the same tokens to the Markov and confidence heads; `bias`
    [block, vocab] is the bias of those tokens.
    """

    def measure(name: str, x: np.ndarray, y: np.ndarray) -> None:
        label = name.rpartition(".")[2]
        bound = bounds.of(label)
        if bound is None:
            checks.equal(label, int(np.sum(x != y)) if x.shape == y.shape else x.size, where)
        else:
            checks.measure(label, bound, x, y, where)

    names = ["main_x"] + [f"s{s}.ring" for s in range(stages)]
    names += [f"s{s}.{name}" for s in range(stages) for name in STAGE_ORDER]
    for name in names + FINAL_ORDER:
        if name not in tested or name not in trusted:
            continue
        prefix, _, label = name.rpartition(".")
        if label == "route_ids":
            if _route_changed(checks, bounds, prefix, tested, trusted, where):
                return
        elif label == "route_weights":
            measure(name, _sorted_route(tested, prefix)[1], _sorted_route(trusted, prefix)[1])
        elif label == "drafts":
            compare_choices(checks, bounds, tested, trusted, bias, where)
        elif label != "top2_ids":
            measure(name, tested[name], trusted[name])


def finish_rounds(checks: Checks, bounds: Bounds, rounds: int) -> None:
    """What concerns a whole run: the median, and how many rounds may be cut short."""
    base = checks.lines.get("base_logits rel")
    if bounds.base_median is not None and base is not None:
        median = float(np.median(base.values))
        checks.add("base_logits rel median", median, bounds.base_median, "all")
    if bounds.route_limit is not None:
        allowed = max(1.0, LEFT_OUT_SHARE * rounds)
        checks.add("rounds left out", len(checks.left_out), allowed, "all")
