"""Reliability diagrams as PNG. Needs matplotlib (extra `dream`)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semif.jsonl import write_whole
from semif.measuring.measures import BINS, Bin

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS = 4
_INK, _GREY, _RULE = "#1f2933", "#6b7785", "#d5dae0"
_AFTER, _PALE, _BEFORE = "#4c8bb8", "#c3d8e7", "#c8553d"
_FEW = 10


@dataclass(frozen=True)
class Panel:
    """One diagram: bins before and after calibration, None where empty, and their ECE."""

    title: str
    before: Sequence[Bin | None]
    after: Sequence[Bin | None]
    ece_before: float
    ece_after: float


def reliability(path: Path, panels: Sequence[Panel], title: str) -> None:
    """Write the panels as one PNG, in the order given; FileError when it cannot be written.

    Bars: how often rows of a bin were right after calibration; circles: before, at their mean
    confidence; figures above: rows in the bin after calibration. On the diagonal a probability
    means what it says (Guo et al. 2017, figure 1); bars above it are too shy, below it too sure.
    """
    # Not pyplot, which would keep state for the whole process and look for a screen.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    columns = min(_COLUMNS, len(panels))
    lines = ceil(len(panels) / columns)
    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.1)
    figure = Figure(figsize=(0.4 + 2.55 * columns, 1.0 + 3.0 * lines), layout=layout)
    FigureCanvasAgg(figure)
    figure.suptitle(title, x=0.012, ha="left", fontsize=11, fontweight="bold", color=_INK)
    grid = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    for i, axes in enumerate(grid.flat):
        if i < len(panels):
            _draw(axes, panels[i])
            if i + columns >= len(panels):  # nothing below it
                axes.tick_params(labelbottom=True)
                axes.set_xlabel("confidence", fontsize=8, color=_GREY)
            if i % columns == 0:
                axes.set_ylabel("accuracy", fontsize=8, color=_GREY)
        else:
            axes.set_visible(False)
    figure.legend(
        handles=_legend(),
        loc="outside lower left",
        ncols=2 if columns < 3 else 5,
        frameon=False,
        fontsize=8,
        labelcolor=_GREY,
        handlelength=1.6,
        columnspacing=1.6,
    )
    data = BytesIO()
    figure.savefig(data, format="png", dpi=160, facecolor="white")
    write_whole(path, data.getvalue())
    os.chmod(path, 0o644)


def _draw(axes: Axes, panel: Panel) -> None:
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.11)
    axes.set_aspect("equal")
    ticks = [0, 0.5, 1]
    axes.set_xticks(ticks, ["0", ".5", "1"])
    axes.set_yticks(ticks, ["0", ".5", "1"])
    axes.tick_params(length=2.5, labelsize=8, colors=_GREY, width=0.6)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(_RULE)
    axes.axhline(1, color=_RULE, linewidth=0.6, zorder=0)
    axes.plot([0, 1], [0, 1], color=_INK, linewidth=0.7, linestyle=(0, (4, 3)), zorder=3)
    for i, of_bin in enumerate(panel.after):
        if of_bin is None:
            continue
        colour = _AFTER if of_bin.rows >= _FEW else _PALE
        middle = (i + 0.5) / BINS
        axes.bar(middle, of_bin.accuracy, width=0.92 / BINS, color=colour, zorder=2)
        if of_bin.accuracy == 0:  # seen as a line where a bar would have no height
            axes.plot([i / BINS + 0.004, (i + 1) / BINS - 0.004], [0, 0], color=colour, lw=2.5)
        axes.text(
            middle, 1.055, str(of_bin.rows), ha="center", va="center", fontsize=5.6, color=_GREY
        )
    seen = [of_bin for of_bin in panel.before if of_bin]
    axes.plot(
        [of_bin.confidence for of_bin in seen], [of_bin.accuracy for of_bin in seen],
        linestyle="none", marker="o", markersize=3.6, markerfacecolor="white",
        markeredgecolor=_BEFORE, markeredgewidth=1.1, zorder=4, clip_on=False,
    )  # fmt: skip
    rows = sum(of_bin.rows for of_bin in panel.after if of_bin)
    ece = f"ECE {panel.ece_before:.3f} → {panel.ece_after:.3f} · {rows} rows"
    axes.set_title(panel.title, loc="left", fontsize=9, fontweight="bold", color=_INK, pad=17)
    axes.text(0, 1.13, ece, fontsize=8, color=_INK, va="bottom")


def _legend() -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    circle: dict[str, Any] = {"marker": "o", "markerfacecolor": "white", "markeredgecolor": _BEFORE}
    return [
        Patch(color=_AFTER, label="after (above: rows)"),
        Patch(color=_PALE, label=f"after, fewer than {_FEW} rows"),
        Line2D([], [], linestyle="none", markersize=4, label="before", **circle),
        Line2D([], [], color=_INK, linewidth=0.7, linestyle="--", label="perfectly calibrated"),
    ]
