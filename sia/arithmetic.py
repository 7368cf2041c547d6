"""Sums and units in a person's words: read by rule, worked out by simpleeval and pint.

Decimals are exact (0.1 + 0.2 is 0.3), and a power, a factorial or a text that would take long or
fill the memory is refused before it is begun.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable
from decimal import Context, Decimal, InvalidOperation, localcontext
from fractions import Fraction
from typing import Any

MOST_TEXT, MOST_DIGITS, DIGITS = 300, 1_000, 15  # characters read, digits worked with and shown
_CONTEXT = Context(prec=60, Emax=10_000, Emin=-10_000)
_POWER, _FACTORIAL = 10_000, 450


class Wrong(Exception):
    """It cannot be worked out: one line that says why."""


class Unclear(Wrong):
    """No expression is found in the words."""


_ASKED = re.compile(
    r"(?:(?:please|sia|hey|so|and|(?:can|could|would) you|(?:do|tell)(?:\s+you)?\s+(?:know|me)"
    r"|what(?:['’]?s|\s+is|\s+are|\s+does)?|how\s+(?:much|many)(?:\s+(?:is|are|does))?|calculate"
    r"|compute|convert|work\s+out|evaluate|solve|the\s+(?:result|value|answer)\s+of|express|change"
    r"|turn|was\s+(?:ist|sind)|wie\s*viel(?:e)?(?:\s+(?:ist|sind))?|berechne|rechne)\b[\s,:]*)+",
    re.IGNORECASE,
)
_N = r"[-+]?(?:\d[\d,  _']*(?:\.\d+)?|\.\d+)(?:e[-+]?\d{1,4})?"
_UNIT = r"[a-zµμ°Ωäöüß][\w°µμΩ²³/*^ .·-]{0,40}?"
_CONVERT = re.compile(
    rf"(?P<n>{_N}|an?|one|half\s+an?|half)\s*(?P<from>{_UNIT})\s+"
    rf"(?:in|to|into|as|is\s+(?:what|how\s+many)(?:\s+in)?|are\s+how\s+many)\s+(?:an?\s+)?(?P<to>{_UNIT})",
    re.IGNORECASE,
)
_HOW_MANY = re.compile(
    rf"(?P<to>{_UNIT})\s+(?:are\s+(?:there\s+)?in|is|in|are|make|fit\s+(?:in|into))\s+"
    rf"(?P<n>{_N}|an?|one|half\s+an?|half)\s*(?P<from>{_UNIT})",
    re.IGNORECASE,
)
# As people write them, to the names that pint knows.
_UNITS = {
    "c": "degC", "°c": "degC", "celsius": "degC", "degrees celsius": "degC",
    "degree celsius": "degC", "f": "degF", "°f": "degF", "fahrenheit": "degF",
    "degrees fahrenheit": "degF", "degree fahrenheit": "degF", "k": "kelvin",
    "mph": "mile/hour", "kmh": "km/hour", "km/h": "km/hour", "kph": "km/hour",
    "meile": "mile", "meilen": "mile", "zoll": "inch", "fuß": "foot", "pfund": "pound",
    "stunden": "hour", "minuten": "minute", "tage": "day", "wochen": "week", "sekunden": "second",
    "oz": "ounce", "fl oz": "fluid_ounce", "fluid ounces": "fluid_ounce",
    "fluid ounce": "fluid_ounce", "lbs": "pound", "tbsp": "tablespoon", "tsp": "teaspoon",
    "sq m": "meter**2", "square feet": "foot**2", "square meters": "meter**2",
    "square metres": "meter**2", "square miles": "mile**2", "square km": "km**2",
    "square kilometers": "km**2", "cubic meters": "meter**3", "cubic metres": "meter**3",
    "nautical miles": "nautical_mile", "light years": "light_year", "mb": "megabyte",
    "gb": "gigabyte", "kb": "kilobyte", "tb": "terabyte", "mib": "mebibyte", "gib": "gibibyte",
    "stones": "stone", "g": "gram", "m": "meter", "l": "liter", "h": "hour", "min": "minute",
}  # fmt: skip
_MONEY = re.compile(
    r"(?i)dollars?|euros?|pounds? sterling|usd|eur|gbp|chf|yen|jpy|francs?|rupees?|[$€£¥]"
)


def answer(text: str) -> str:
    """One line: ``12% of 340 = 40.8``, ``5 miles = 8.04672 km``. Raises Wrong, Unclear."""
    line = " ".join(text.replace("\xa0", " ").split())
    if len(line) > MOST_TEXT:
        raise Wrong(f"That is longer than {MOST_TEXT} characters.")
    line = line[match.end() :] if (match := _ASKED.match(line)) else line
    line = line.strip(" ?=").removesuffix(".").strip()
    line = re.sub(r"(?<![\d)])!+$", "", line)  # of a number it is its factorial
    found = _CONVERT.fullmatch(line) or _HOW_MANY.fullmatch(line)
    if found:
        return _converted(found["n"].strip(), found["from"].strip(), found["to"].strip())
    if not re.search(r"\d|\bpi\b|\be\b", line):
        raise Unclear("I see no numbers to work with.")
    return f"{line} = {_number(_evaluated(_expression(line)))}"


# units


def _converted(amount: str, unit: str, target: str) -> str:
    import pint

    for name in (unit, target):
        if _MONEY.fullmatch(name):
            raise Wrong(f"{name} is money, and I know no rates.")
    given = re.sub(r"[,  _']", "", amount.lower())
    value = Decimal({"a": 1, "an": 1, "one": 1}.get(given) or (".5" if "half" in given else given))
    units: Any = pint.UnitRegistry(non_int_type=Decimal, autoconvert_offset_to_baseunit=True)
    try:
        with localcontext(_CONTEXT):
            found = units.Quantity(value, _unit(units, unit)).to(_unit(units, target))
            return f"{amount} {unit} = {_number(Decimal(found.magnitude), 6)} {target}"
    except pint.DimensionalityError:
        raise Wrong(f"{unit} and {target} measure different things.") from None
    except (ValueError, ArithmeticError):
        raise Wrong(f"{amount} {unit} is too large a number for me.") from None


def _unit(units: Any, name: str) -> Any:
    """The unit of that name as people write it. Raises Wrong."""
    import pint

    plain = name.lower().strip(" .")
    tries = [_UNITS.get(plain), name, plain, plain.removesuffix("s"), plain.replace(" ", "_")]
    for known in filter(None, tries):
        if re.search(r"\d{3}|\*\*.*\*\*", known) and known not in _UNITS.values():
            break  # a power of a power: nothing that people measure in
        try:
            return units.parse_units(known)
        except (pint.errors.PintError, ValueError, TypeError, AttributeError, KeyError):
            continue
        except (SyntaxError, RecursionError, OverflowError, ArithmeticError):
            break
    raise Wrong(f"I do not know the unit {name!r}.")


# expressions

_WORDS = (
    (r"(?<=\d),(?=\d{3}\b)", ""),
    (r"(?<=\d)[_'](?=\d{3}\b)", ""),
    (r"(?<=\d),(?=\d)", "."),
    (r"[×·∙]|(?<=[\d)\s])x(?=[\s\d(])", "*"),
    (r"[÷∕]", "/"),
    (r"[−–]", "-"),
    (r"(?<=\d)\s*(?:π|pi\b)", "*pi"),
    (r"π", "pi"),
    (r"√\s*(\d+(?:\.\d+)?)", r"sqrt(\1)"),
    (r"√", "sqrt"),
    (r"(?<=[\d)])²", "**2"),
    (r"(?<=[\d)])³", "**3"),
    (r"\bto the power of\b|\braised to\b|\^", "**"),
    (r"\bsquared\b", "**2"),
    (r"\bcubed\b", "**3"),
    (r"\b(?:the )?square root of (\d+(?:\.\d+)?|(?=\())", r"sqrt(\1)"),
    (r"\b(?:the )?cube root of (\d+(?:\.\d+)?)", r"cbrt(\1)"),
    (r"\bplus\b|\bund\b", "+"),
    (r"\bminus\b", "-"),
    (r"\b(?:times|multiplied by|mal)\b", "*"),
    (r"\b(?:divided by|over|geteilt durch)\b", "/"),
    (r"\b(?:modulo|mod)\b", "%"),
    (r"\bhalf of\b", "0.5*"),
    (r"\ba third of\b", "1/3*"),
    (r"\ba quarter of\b", "0.25*"),
    (r"(\d)\s*degrees\b|(\d)\s*°", r"\1\2*pi/180"),
    (r"(\d+)\s*!(?!=)", r"factorial(\1)"),
)
_PERCENT = r"(\d+(?:\.\d+)?)\s*(?:%|percent\b|prozent\b|per cent\b)"


def _expression(line: str) -> str:
    """The words of a sum as an expression of simpleeval."""
    text = line.lower()
    for pattern, sign in _WORDS:
        text = re.sub(pattern, sign, text)
    text = text.replace("sqrt()", "sqrt")
    text = re.sub(rf"{_PERCENT}\s*(?:of|von)\s+", r"(\1/100)*", text)
    # "200 + 15%" means of what stands before it.
    text = re.sub(rf"^(.+?)\s*([-+])\s*{_PERCENT}$", r"(\1)*(1\2\3/100)", text)
    off = re.fullmatch(rf"{_PERCENT}\s*off\s+(.+)", text)
    text = f"({off[2]})*(1-{off[1]}/100)" if off else text
    return re.sub(rf"{_PERCENT}(?!\s*[\d(])", r"(\1/100)", text)


def _evaluated(expression: str) -> Any:
    from simpleeval import InvalidExpression, SimpleEval

    evaluator = SimpleEval(
        operators=_OPERATORS,
        functions=_FUNCTIONS,
        names={"pi": Decimal("3.14159265358979323846264338327950288"),
               "e": Decimal("2.71828182845904523536028747135266250")},
    )  # fmt: skip
    # Decimals as they are written, before a float would round them.
    evaluator.nodes = {
        ast.Expression: lambda node: evaluator._eval(node.body),
        ast.Constant: _constant,
        ast.UnaryOp: evaluator._eval_unaryop,
        ast.BinOp: evaluator._eval_binop,
        ast.Call: evaluator._eval_call,
        ast.Name: evaluator._eval_name,
    }
    try:
        with localcontext(_CONTEXT):
            tree = ast.parse(expression.strip(), mode="eval")
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant):
                    node.written = ast.get_source_segment(expression.strip(), node)  # type: ignore[attr-defined]
            return evaluator.eval(expression, previously_parsed=tree.body)
    except ZeroDivisionError:
        raise Wrong("Nothing can be divided by 0.") from None
    except Wrong:
        raise
    except (InvalidExpression, SyntaxError, TypeError, RecursionError, MemoryError, KeyError):
        raise Unclear(f"I cannot read that as a sum: {expression[:80]}") from None
    except (InvalidOperation, ValueError):
        raise Wrong("That has no result in real numbers.") from None
    except ArithmeticError:
        raise Wrong("That number is too large for me.") from None


def _constant(node: ast.Constant) -> int | Decimal:
    if type(node.value) is int:
        return _bounded(node.value)
    if type(node.value) is float:
        return Decimal(node.written)  # type: ignore[attr-defined]
    raise Unclear(f"I cannot work with {node.value!r:.40}.")


def _bounded(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > MOST_DIGITS * 3.33:
        raise Wrong(f"That number has more than {MOST_DIGITS:,} digits.")
    return value


def _power(base: Any, exponent: Any) -> Any:
    if abs(exponent) > _POWER:
        raise Wrong(f"The power {_number(exponent)} is too large for me.")
    if isinstance(base, int) and isinstance(exponent, int) and exponent >= 0:
        if base.bit_length() * exponent > MOST_DIGITS * 3.33:
            raise Wrong(f"That number has more than {MOST_DIGITS:,} digits.")
        return base**exponent
    if base < 0 and exponent != int(exponent):
        raise Wrong("That has no result in real numbers.")
    return Decimal(base) ** Decimal(exponent)


def _divided(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int) and b and a % b == 0:
        return a // b
    if b == 0:
        raise ZeroDivisionError
    return Decimal(a) / Decimal(b)


def _factorial(n: Any) -> int:
    if n != int(n) or n < 0:
        raise Wrong("A factorial is of a whole number from 0.")
    if n > _FACTORIAL:
        raise Wrong(f"That number has more than {MOST_DIGITS:,} digits.")
    return math.factorial(int(n))


def _real(function: Callable[..., float]) -> Callable[..., Decimal]:
    """A function of floats; what it gives is not exact, so it is kept to 15 digits."""
    return lambda *values: Decimal(f"{function(*map(float, values)):.15g}")


def _mixed(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: _bounded(operation(a, b))


_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: _mixed(operator.add),
    ast.Sub: _mixed(operator.sub),
    ast.Mult: _mixed(operator.mul),
    ast.Div: _divided,
    ast.FloorDiv: _mixed(operator.floordiv),
    ast.Mod: _mixed(operator.mod),
    ast.Pow: _power,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sqrt": lambda x: Decimal(x).sqrt(),
    "cbrt": _real(math.cbrt),
    "abs": abs,
    "round": lambda x, n=0: round(Decimal(x), int(n)) if n else int(round(Decimal(x))),
    "floor": math.floor,
    "ceil": math.ceil,
    "factorial": _factorial,
    "min": min,
    "max": max,
    "ln": lambda x: Decimal(x).ln(),
    "log": lambda x, base=10: Decimal(x).ln() / Decimal(base).ln() if base != 10
    else Decimal(x).log10(),
    "log10": lambda x: Decimal(x).log10(),
    "log2": _real(math.log2),
    "exp": lambda x: _power(Decimal(1).exp(), x),
    **{name: _real(getattr(math, name))
       for name in ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh")},
}  # fmt: skip


def _number(value: Any, digits: int = DIGITS) -> str:
    """As people write it: ``40.8``, ``1,234,567``, ``1.5e+30``; at most ``digits`` digits."""
    if isinstance(value, Fraction | float):
        value = Decimal(float(value))
    if isinstance(value, int):
        text = str(value)
        return f"{value:,}" if len(text) <= 30 else f"{text[:40]}… ({len(text):,} digits)"
    if not value.is_finite():
        raise Wrong("That has no result in real numbers.")
    if value == value.to_integral_value() and abs(value) < Decimal(10) ** 20:
        return f"{int(value):,}"
    size = value.adjusted()
    if not -6 < size < 16:
        return f"{value.normalize(Context(prec=min(digits, 12))):.12g}"
    kept = value.normalize(Context(prec=max(min(digits, 12), size + 1 + (2 if digits < 10 else 0))))
    whole, _, rest = f"{kept:,f}".partition(".")
    rest = rest.rstrip("0")
    return f"{whole}.{rest}" if rest else whole
