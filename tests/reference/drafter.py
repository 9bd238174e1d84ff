"""The whole drafter: insert taps, run the block, draft (sections 4 to 8 of the model note).

`run_rounds` inserts every round's rows in order, then runs the blocks of all rounds as one batch: a
block depends on the window rows before it and on nothing else.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

import ops
from numerics import SETTINGS, Rounding
from ops import Rules
from safetensors_io import Tensor
from stages import Stages
from weights import Weights

Tensors = dict[str, np.ndarray]  # tensor name without the round's prefix -> array
Results = dict[str, Tensors]  # round name -> its tensors


@dataclasses.dataclass(frozen=True)
class RoundInput:
    """One round: rows to insert at consecutive positions, then one draft from the anchor."""

    name: str
    taps: np.ndarray
    positions: np.ndarray
    anchor: int

    @property
    def request(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def anchor_position(self) -> int:
        return int(self.positions[-1]) + 1


@dataclasses.dataclass(frozen=True)
class Window:
    """The valid context rows of one request: ascending positions and each stage's K rows."""

    positions: np.ndarray
    keys: tuple[np.ndarray, ...]

    def last(self, count: int) -> Window:
        return Window(self.positions[-count:], tuple(rows[-count:] for rows in self.keys))


def read_rounds(inputs: Mapping[str, Tensor]) -> list[RoundInput]:
    """Rounds from R.taps, R.positions, R.insert_rows and R.anchors of every request R."""
    rounds: list[RoundInput] = []
    for name in sorted(inputs):
        if not name.endswith(".taps"):
            continue
        request = name.removesuffix(".taps")
        taps = inputs[name].f64()
        positions = inputs[f"{request}.positions"].ints()
        counts = inputs[f"{request}.insert_rows"].ints()
        anchors = inputs[f"{request}.anchors"].ints()
        if counts.sum() != len(taps) or len(positions) != len(taps) or len(anchors) != len(counts):
            raise ValueError(f"inputs: request {request}: rows, positions and rounds disagree")
        if np.any(counts < 1) or np.any(np.diff(positions) != 1):
            raise ValueError(f"inputs: request {request}: positions are not consecutive")
        ends = np.cumsum(counts)
        for index, (begin, end) in enumerate(zip(ends - counts, ends)):
            rows = slice(begin, end)
            rounds.append(
                RoundInput(f"{request}.{index}", taps[rows], positions[rows], int(anchors[index]))
            )
    return rounds


@dataclasses.dataclass(frozen=True)
class Drafter:
    stages: Stages

    @classmethod
    def make(
        cls,
        weights: Weights | pathlib.Path,
        setting: str | Rounding = "f32",
        faults: Sequence[str] = (),
        integer_path: bool = False,
    ) -> Drafter:
        loaded = weights if isinstance(weights, Weights) else Weights.load(weights)
        rounding = SETTINGS[setting] if isinstance(setting, str) else setting
        rules = Rules(loaded.config, rounding, frozenset(faults))
        return cls(Stages(loaded, rules, integer_path))

    @property
    def rules(self) -> Rules:
        return self.stages.rules

    @property
    def stage_count(self) -> int:
        return self.stages.weights.stages

    @property
    def own_pre(self) -> bool:
        """Does a sublayer read the streams with its own pre weights (difference 1 of section 1)?"""
        return self.rules.config.arch == "v4" or "own_pre" in self.rules.faults

    def insert(self, window: Window | None, taps: np.ndarray, positions: np.ndarray):
        """(new window, main_x): the window keeps one row more than the config's, see draft()."""
        main_x = self.stages.main_x(taps)
        rows = tuple(self.stages.keys(s, main_x, positions) for s in range(self.stage_count))
        if window is not None:
            positions = np.concatenate([window.positions, positions])
            rows = tuple(np.concatenate(pair) for pair in zip(window.keys, rows))
        return Window(positions, rows).last(self.rules.config.window + 1), main_x

    def visible(self, window: Window) -> Window:
        """The rows a block attends to: the last `window` positions, missing ones absent."""
        faults, count = self.rules.faults, self.rules.config.window
        if "window_old" in faults:
            shifted = Window(window.positions[:-1], tuple(rows[:-1] for rows in window.keys))
            return shifted.last(count)
        if "window_short" in faults:
            return window.last(count - 1)
        shown = window.last(count)
        if "zero_rows" not in faults:
            return shown
        return Window(
            shown.positions,
            tuple(np.pad(rows, ((0, count - len(rows)), (0, 0))) for rows in shown.keys),
        )

    def block_ids(self, anchors: np.ndarray) -> np.ndarray:
        """[anchor, noise, noise, ..] of each block, [blocks, block]."""
        noise = 0 if "noise0" in self.rules.faults else self.rules.config.noise_id
        ids = np.full((len(anchors), self.rules.config.block), noise)
        ids[:, 0] = anchors
        return ids

    def block_positions(self, anchor_positions: np.ndarray) -> np.ndarray:
        """Row j at P + j, flattened over the blocks."""
        shift = ("block_pos+1" in self.rules.faults) - ("block_pos-1" in self.rules.faults)
        steps = np.arange(self.rules.config.block)
        return (anchor_positions[:, None] + steps + shift).reshape(-1)

    def first_streams(self, anchors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(h [rows, m, D] copies of the embedding, first pre [rows, m] = one-hot on copy 0)."""
        copies = self.rules.config.hc_mult
        ids = self.block_ids(anchors).reshape(-1)
        embedded = self.stages.weights.tensors["embed.weight"].f64(rows=ids)
        pre = np.zeros((len(ids), copies))
        pre[:, 0] = 1.0
        if "first_mix_mean" in self.rules.faults:
            pre[:] = 1.0 / copies
        return np.repeat(embedded[:, None, :], copies, axis=1), pre

    def run_stage(
        self,
        s: int,
        h: np.ndarray,
        pre: np.ndarray,
        contexts: Sequence[np.ndarray],
        positions: np.ndarray,
    ) -> Tensors:
        """All intermediates of one stage for rows of len(contexts) blocks (section 5)."""
        st, out = self.stages, {}
        own_pre = self.own_pre
        out["attn_pre"], out["attn_post"], out["attn_comb"] = st.mix(s, "attn", h)
        x = st.sublayer_in(s, "attn", h, out["attn_pre"] if own_pre else pre)
        out["attn_in"] = x
        out["qr"] = st.query_latent(s, x)
        out["q"] = st.query(s, out["qr"], positions)
        out["k_block"] = st.keys(s, x, positions)
        rows = self.rules.config.block
        out["o"] = np.concatenate(
            [
                st.attend(s, out["q"][at], context, out["k_block"][at], positions[at])
                for context, at in zip(
                    contexts, (slice(i, i + rows) for i in range(0, len(x), rows))
                )
            ]
        )
        out["z"] = st.group_out(s, out["o"])
        out["attn_out"] = st.attn_out(s, out["z"])
        h = ops.update(self.rules, out["attn_out"], h, out["attn_post"], out["attn_comb"])
        out["streams_attn"] = h
        out["ffn_pre"], out["ffn_post"], out["ffn_comb"] = st.mix(s, "ffn", h)
        x = st.sublayer_in(s, "ffn", h, out["ffn_pre" if own_pre else "attn_pre"])
        out["ffn_in"] = x
        out["router_logits"] = st.router_logits(s, x)
        out["route_ids"], out["route_weights"], out["route_margin"] = st.route(
            s, out["router_logits"]
        )
        out["routed"] = st.routed(s, x, out["route_ids"], out["route_weights"])
        out["shared"] = st.shared(s, x)
        out["ffn_out"] = st.ffn_out(out["routed"], out["shared"])
        out["streams"] = ops.update(
            self.rules, out["ffn_out"], h, out["ffn_post"], out["ffn_comb"]
        )
        return out

    def final_collapse(self, h: np.ndarray, pre: np.ndarray) -> np.ndarray:
        """The head's input before its norm: last FFN's pre (v41) or the learned collapse (v4)."""
        if self.rules.config.arch == "v4":
            pre = self.stages.head_weights(h)
        return ops.collapse(self.rules, h, pre)

    def heads(
        self, collapsed: np.ndarray, anchor: int, forced: np.ndarray | None
    ) -> Tensors:
        """One block's greedy drafts; `forced` are tokens fed on instead of the drafts (7, 8)."""
        hidden = self.stages.hidden(collapsed)
        base = self.stages.base_logits(hidden)
        biases, top_ids, fed = [], [], [anchor]
        for i, row in enumerate(base):
            bias = self.stages.markov_bias(np.array([fed[i]]))[0]
            biases.append(np.zeros_like(bias) if i == 0 and self._unbiased_start() else bias)
            top_ids.append(top_two(row + biases[i]))
            fed.append(int(top_ids[i][0] if forced is None else forced[i]))
        bias, ids = np.stack(biases), np.stack(top_ids)
        faults = self.rules.faults
        source = hidden if "conf_postnorm" in faults else collapsed
        tokens = fed[1:] if "conf_produced_token" in faults else fed[:-1]
        return {
            "hidden": hidden,
            "base_logits": base,
            "markov_bias": bias,
            "top2_ids": ids,
            "top2_values": np.take_along_axis(base + bias, ids, axis=1),
            "drafts": ids[:, 0],
            "confidence": self.stages.confidence(source, np.array(tokens)),
        }

    def _unbiased_start(self) -> bool:
        return "markov0_missing" in self.rules.faults

    def run_rounds(
        self, rounds: Sequence[RoundInput], forced: Mapping[str, np.ndarray] | None = None
    ) -> Results:
        """Every tensor of every round under its golden name (without the round's prefix)."""
        results: Results = {}
        open_windows: dict[str, Window] = {}
        windows: list[Window] = []
        for item in rounds:
            window, main_x = self.insert(
                open_windows.get(item.request), item.taps, item.positions
            )
            open_windows[item.request] = window
            windows.append(self.visible(window))
            results[item.name] = {"main_x": main_x}
            for s in range(self.stage_count):
                shown = windows[-1].keys[s][: len(windows[-1].positions)]
                results[item.name][f"s{s}.ring"] = shown
        anchors = np.array([item.anchor for item in rounds])
        positions = self.block_positions(np.array([item.anchor_position for item in rounds]))
        h, pre = self.first_streams(anchors)
        block = self.rules.config.block
        for s in range(self.stage_count):
            out = self.run_stage(s, h, pre, [window.keys[s] for window in windows], positions)
            h, pre = out["streams"], out["ffn_pre"]
            for index, item in enumerate(rounds):
                rows = slice(index * block, (index + 1) * block)
                results[item.name].update({f"s{s}.{key}": out[key][rows] for key in out})
        collapsed = self.final_collapse(h, pre)
        for index, item in enumerate(rounds):
            rows = slice(index * block, (index + 1) * block)
            tokens = None if forced is None else forced.get(item.name)
            results[item.name]["collapse"] = collapsed[rows]
            results[item.name].update(self.heads(collapsed[rows], item.anchor, tokens))
        return results


def top_two(scores: np.ndarray) -> np.ndarray:
    """Ids of the two best scores, lower id first on ties (7.1)."""
    first = int(np.argmax(scores))
    rest = scores.copy()
    rest[first] = -np.inf
    return np.array([first, int(np.argmax(rest))])
