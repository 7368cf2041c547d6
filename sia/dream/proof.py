"""The gate: whether a candidate is proven better than the revision it came from.

Each line says what was asked, what was found, and whether that will do; all must.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from semif.measuring import paired
from semif.measuring.paired import Said

HELD_ROWS = 40
GOLDEN_ROWS = 1000
GOLDEN_POINTS = 0.5
PHASE_POINTS = 2.0
PHASE_P = 0.05
ECE_RISE = 0.01
SLOWER = 1.05


@dataclass(frozen=True)
class Line:
    """One demand of the gate."""

    name: str
    passed: bool
    text: str


@dataclass(frozen=True)
class Proof:
    lines: tuple[Line, ...]

    @property
    def passed(self) -> bool:
        return all(line.passed for line in self.lines)

    @property
    def failed(self) -> tuple[Line, ...]:
        return tuple(line for line in self.lines if not line.passed)

    def to_json(self) -> dict[str, Any]:
        return {"passed": self.passed, "lines": [asdict(line) for line in self.lines]}


@dataclass(frozen=True)
class Side:
    """What one revision said: on held-out rows and on the golden set; selections that changed
    under another order of options; `ms`: of decisions timed in turns with the other side."""

    held: Sequence[Said]
    golden: Sequence[Said]
    flips: int
    ms: Sequence[float]


def prove(old: Side, new: Side) -> Proof:
    """The lines of the gate, each found to hold or not."""
    return Proof(
        (
            held(old.held, new.held, "labelled rows"),
            _golden(old.golden, new.golden),
            _phases(old.golden, new.golden),
            _ece(old.golden, new.golden),
            _prompts(old.golden, new.golden),
            _flips(old.flips, new.flips),
            _latency(old.ms, new.ms),
        )
    )


def held(old: Sequence[Said], new: Sequence[Said], what: str, each: str = "") -> Line:
    """On ``what`` is held out, such as `labelled rows`; ``each``: what the loss is taken over."""
    if len(old) < HELD_ROWS:
        text = f"not enough to prove: {len(old)} {what} are held out, {HELD_ROWS} are needed"
        return Line("held out", False, text)
    found = paired.change(old, new)
    text = (
        f"loss changes by {found.mean:+.3f}{each} over {len(old)} {what.split()[-1]}, with 90 % at "
        f"most {found.high:+.3f}; must be below 0"
    )
    return Line("held out", found.high < 0, text)


def _golden(old: Sequence[Said], new: Sequence[Said]) -> Line:
    if len(old) < GOLDEN_ROWS:
        text = f"not enough to prove: {len(old)} golden rows, {GOLDEN_ROWS} are needed"
        return Line("golden", False, text)
    lost, _ = paired.worse(old, new)
    before, after = (100 * sum(row.right for row in side) / len(side) for side in (old, new))
    text = f"accuracy {before:.1f} % to {after:.1f} %; may fall by {GOLDEN_POINTS} points"
    return Line("golden", lost <= GOLDEN_POINTS, text)


def _phases(old: Sequence[Said], new: Sequence[Said]) -> Line:
    by_phase = {row.phase: index for index, row in enumerate(old)}
    worst = []
    for phase in by_phase:
        a = [row for row in old if row.phase == phase]
        b = [row for row in new if row.phase == phase]
        lost, p = paired.worse(a, b)
        if lost > PHASE_POINTS and p < PHASE_P:
            worst.append(f"{phase} loses {lost:.1f} points (p {p:.3f})")
    text = "; ".join(worst) or f"none loses more than {PHASE_POINTS:g} points for sure"
    return Line("phases", not worst, text)


def _ece(old: Sequence[Said], new: Sequence[Said]) -> Line:
    if not old:
        return Line("calibration", False, "no golden rows to measure it on")
    before, after = paired.ece(old), paired.ece(new)
    text = f"ECE {before:.3f} to {after:.3f}; may rise by {ECE_RISE}"
    return Line("calibration", after - before <= ECE_RISE, text)


def _prompts(old: Sequence[Said], new: Sequence[Said]) -> Line:
    changed = sum(a.prompt_sha256 != b.prompt_sha256 for a, b in zip(old, new, strict=True))
    text = f"{changed} of {len(old)} prompts read otherwise" if changed else "every hash stands"
    return Line("prompts", not changed, text)


def _flips(old: int, new: int) -> Line:
    text = f"{new} selections change with the order of options, {old} before"
    return Line("order", new <= old, text)


def _latency(old: Sequence[float], new: Sequence[float]) -> Line:
    found = paired.ratio(old, new)
    text = f"{found.mean:.2f} times the wall time, with 90 % at least {found.low:.2f}"
    return Line("latency", found.low < SLOWER, f"{text}; must be below {SLOWER}")


def corrected(old: Sequence[Said], new: Sequence[Said]) -> Mapping[str, int]:
    """What became of the decisions that a person corrected; no part of the gate, since some of
    them were learned from."""
    pairs = list(zip(old, new, strict=True))
    return {
        "rows": len(pairs),
        "right before": sum(a.right for a, _ in pairs),
        "right now": sum(b.right for _, b in pairs),
    }
