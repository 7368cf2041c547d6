"""The report as one HTML page that needs nothing else: no script, no request."""

from __future__ import annotations

from datetime import datetime
from importlib import resources

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from sia.dream import plots
from sia.dream.report import Report


def page(report: Report, now: datetime) -> str:
    """``now``: in the person's zone."""
    source = (resources.files("sia.dream") / "report.html.j2").read_text("utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(source).render(
        report=report,
        made=f"{now:%Y-%m-%d %H:%M}",
        percent=lambda share: f"{100 * share:.0f} %",
        # The plots are elements, made by matplotlib from numbers and escaped names.
        reliability=Markup(plots.reliability(report.reliability)) if report.rows else "",
        days=Markup(plots.days(report.days)) if report.rows else "",
        confusions=[(found.phase, Markup(plots.confusion(found))) for found in report.confusions],
        nights=Markup(plots.nights(report.nights)) if report.nights else "",
    )
