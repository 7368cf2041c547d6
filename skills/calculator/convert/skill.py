"""Converts an amount into another unit."""

from __future__ import annotations

from sia import arithmetic
from sia.skills.api import Ctx, Failed


def convert(ctx: Ctx) -> None:
    try:
        ctx.say(arithmetic.answer(ctx.request))
    except arithmetic.Unclear:
        _asked(ctx)
    except arithmetic.Wrong as error:
        raise Failed(str(error), "text") from None


def _asked(ctx: Ctx) -> None:
    try:
        ctx.say(arithmetic.answer(ctx.ask('What should I convert, such as "5 miles in km"?')))
    except arithmetic.Wrong as error:
        raise Failed(str(error), "text") from None
