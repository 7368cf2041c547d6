"""Says what an expression comes to; units are converted where that is what was asked."""

from __future__ import annotations

from sia import arithmetic
from sia.skills.api import Ctx, Failed


def compute(ctx: Ctx) -> None:
    try:
        ctx.say(arithmetic.answer(ctx.request))
    except arithmetic.Unclear:
        _asked(ctx)
    except arithmetic.Wrong as error:
        raise Failed(str(error), "text") from None


def _asked(ctx: Ctx) -> None:
    try:
        ctx.say(arithmetic.answer(ctx.ask("What should I work out, in numbers?")))
    except arithmetic.Wrong as error:
        raise Failed(str(error), "text") from None
