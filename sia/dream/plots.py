"""Plots of the report as SVG that stands on a light page and on a dark one. Needs matplotlib."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

from semif.measuring.measures import BINS, Bin
from sia.dream.report import OTHERS, Confusion, Day, Night

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Read on white as well as on black.
_INK, _RULE, _FIRST, _SECOND = "#7d8894", "#8b95a155", "#4c8bb8", "#c8743d"
_STYLE = {
    "svg.fonttype": "none",  # the page's own letters
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _RULE,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def _svg(width: float, height: float, draw: Any, salt: str) -> str:
    """An <svg> element; ``draw(axes)`` fills it. salt: keeps ids of one page apart."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    data = BytesIO()
    with rc_context({**_STYLE, "svg.hashsalt": salt}):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure.subplots())
        # Without a date the same figures give the same bytes.
        figure.savefig(data, format="svg", transparent=True, metadata={"Date": None})
    text = data.getvalue().decode()
    return text[text.index("<svg") :]


def reliability(bins: Sequence[Bin | None]) -> str:
    """How often decisions were right, by how sure they were; on the diagonal both agree."""

    def draw(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1], color=_INK, linewidth=0.8, linestyle=(0, (4, 3)))
        most = max((of_bin.rows for of_bin in bins if of_bin), default=1)
        for index, of_bin in enumerate(bins):
            if of_bin is None:
                continue
            middle = (index + 0.5) / BINS
            alpha = 0.35 + 0.65 * of_bin.rows / most
            axes.bar(middle, of_bin.accuracy, 0.92 / BINS, color=_FIRST, alpha=alpha)
            axes.text(middle, 1.03, str(of_bin.rows), ha="center", fontsize=7)
        axes.set(xlim=(0, 1), ylim=(0, 1.1), xlabel="confidence", ylabel="right")
        axes.set_xticks([0, 0.5, 1])
        axes.set_yticks([0, 0.5, 1])

    return _svg(3.6, 3.4, draw, "reliability")


def days(found: Sequence[Day]) -> str:
    """The mean loss of each day with its 95 % bounds."""

    def draw(axes: Axes) -> None:
        x = range(len(found))
        axes.fill_between(
            x, [day.low for day in found], [day.high for day in found],
            color=_FIRST, alpha=0.25, linewidth=0,
        )  # fmt: skip
        axes.plot(x, [day.nll for day in found], color=_FIRST, marker="o", markersize=4)
        step = max(1, len(found) // 6)
        axes.set_xticks(list(x)[::step], [day.day[5:] for day in found][::step])
        axes.set_ylim(bottom=0)
        axes.set_ylabel("loss")

    return _svg(5.4, 2.8, draw, "days")


def confusion(found: Confusion) -> str:
    """Rows: what it is; columns: what was selected."""

    def draw(axes: Axes) -> None:
        most = max(max(line) for line in found.counts) or 1
        size = len(found.names)
        for i, line in enumerate(found.counts):
            for j, count in enumerate(line):
                if not count:
                    continue
                # Among the rare ones right and wrong are not told apart.
                same = _INK if found.names[i] == OTHERS else _FIRST
                colour = same if i == j else _SECOND
                alpha = 0.15 + 0.4 * count / most
                axes.add_patch(_square(j, i, colour, alpha))
                axes.text(j, i, str(count), ha="center", va="center", fontsize=8)
        axes.set(xlim=(-0.5, size - 0.5), ylim=(size - 0.5, -0.5), aspect="equal")
        axes.set_xticks(range(size), found.names, rotation=40, ha="right", fontsize=8)
        axes.set_yticks(range(size), found.names, fontsize=8)
        axes.tick_params(length=0)
        axes.set_xlabel("selected")
        axes.set_ylabel("is")

    side = 1.7 + 0.42 * len(found.names)
    return _svg(side, side, draw, f"confusion {found.phase}")


def _square(x: int, y: int, colour: str, alpha: float) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, color=colour, alpha=alpha, linewidth=0)


def nights(found: Sequence[Night]) -> str:
    """Accuracy after each night, one line an arm, with its 90 % bounds."""
    arms: dict[str, list[Night]] = defaultdict(list)
    for night in sorted(found, key=lambda night: night.night):
        arms[night.arm].append(night)

    def draw(axes: Axes) -> None:
        for (arm, of_arm), colour in zip(arms.items(), (_FIRST, _SECOND, _INK) * 9, strict=False):
            x = [night.night for night in of_arm]
            axes.fill_between(
                x, [night.low for night in of_arm], [night.high for night in of_arm],
                color=colour, alpha=0.18, linewidth=0,
            )  # fmt: skip
            y = [night.accuracy for night in of_arm]
            axes.plot(x, y, color=colour, marker="o", markersize=4, label=arm)
        axes.set(xlabel="night", ylabel="accuracy")
        axes.set_xticks(sorted({night.night for night in found}))
        axes.legend(frameon=False, labelcolor=_INK)

    return _svg(5.4, 3.0, draw, "nights")
