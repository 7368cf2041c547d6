"""What a text may not lose or invent: numbers, links, addresses, dates, names, quotations.

Cheap rules, no model: they can only say that a text is wrong, never that it is right.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from semif.writing.language import language, same_language
from semif.writing.names import names, unknown
from semif.writing.numbers import Number, numbers, worded
from semif.writing.tasks import Task, Value, load
from semif.writing.words import dates, folded, lists

# One letter or digit of a link. Every kind below begins where no such sign stands before it, so
# that a text is gone through once.
_SIGN = r"[^\W\u3400-\u9fff]"
_LINK = re.compile(
    r"(?:https?://|www\.)[^\s<>\"'\u3000-\uffef]+"
    rf"|(?<!{_SIGN})(?<![.+-])(?:{_SIGN}|[.+-])++@(?:{_SIGN}|-)+(?:\.[a-z0-9-]+)+"
    rf"|(?<![\w/])(?:~|\.{{1,2}})?/(?:{_SIGN}|[.-])+(?:/(?:{_SIGN}|[.-])+)*"
    rf"|(?<!{_SIGN})(?<![.-])\.?(?:{_SIGN}|-)++(?:\.(?:{_SIGN}|-)++)*\.[a-z][a-z0-9]{{1,4}}\b"
)
_QUOTED = re.compile(r"[\"“„«「『]([^\"“”„«»「」『』]{2,80})[\"”“»」』]")
_AFTER = ".,;:!?)"
_WORDLIKE = re.compile(r"\w+")


@dataclass(frozen=True)
class Broken:
    """Facts that a text lost and facts that it invented, as written; both empty: nothing found."""

    lost: tuple[str, ...] = ()
    invented: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.lost or self.invented)

    def __str__(self) -> str:
        parts = [f"loses {', '.join(self.lost)}"] if self.lost else []
        parts += [f"invents {', '.join(self.invented)}"] if self.invented else []
        return " and ".join(parts) or "keeps to the facts"


@dataclass(frozen=True)
class Fact:
    """One fact as a text has it: a link, number, date, quotation or name."""

    kind: str
    text: str
    number: Number | None = None


class Text:
    """What a text says, to be held against another; `spoken_in` as of `language`, of both."""

    def __init__(self, text: str, spoken_in: str | None) -> None:
        self.text, self._language = text, spoken_in
        self.folded = _without_shorthand(folded(text))
        self.bare = _LINK.sub(" ", self.folded)

    @cached_property
    def links(self) -> list[str]:
        return [link.rstrip(_AFTER) for link in _LINK.findall(folded(self.text))]

    @cached_property
    def quotations(self) -> list[str]:
        return [quoted.strip() for quoted in _QUOTED.findall(self.bare)]

    @cached_property
    def numbers(self) -> list[Number]:
        """In digits, those in links as well."""
        return numbers(self.folded)

    @cached_property
    def worded(self) -> list[Number]:
        return worded(self.bare, self._language)

    @cached_property
    def dates(self) -> list[str]:
        """Days and months that are written out."""
        return dates(self.bare, self._language, short=False)

    @cached_property
    def all_dates(self) -> list[str]:
        """With those that are cut short or in shorthand: what another text may write out."""
        return dates(folded(self.text), self._language, short=True)

    def facts(self) -> list[Fact]:
        """Links, numbers, dates and quotations: what a retelling must keep."""
        # "failed: 1 (a.txt)" may be told as "a.txt failed", "errors: 0" as "no errors".
        counted = [one for one in numbers(self.bare) if one.text not in ("0", "1")]
        return [
            *(Fact("link", link) for link in self.links),
            *(Fact("number", number.text, number) for number in counted),
            *(Fact("date", date) for date in self.dates),
            *(Fact("quotation", quoted) for quoted in self.quotations),
        ]

    def has(self, fact: Fact) -> bool:
        """Whether a fact stands here: a number whole, with its sign and unit; a link whole."""
        if fact.number is not None:
            return fact.number.among(self.numbers)
        if fact.kind == "date":
            return fact.text in self.all_dates
        if fact.kind == "link":
            whole = rf"(?<!{_SIGN}){re.escape(fact.text)}(?!{_SIGN})"
            return re.search(whole, folded(self.text)) is not None
        return folded(fact.text) in folded(self.text)

    def invents(self, other: Text) -> list[str]:
        """Links, numbers and dates of this text that the other lacks."""
        found = [link for link in self.links if not other.has(Fact("link", link))]
        known = [*other.numbers, *other.worded]
        found += [number.text for number in numbers(self.bare) if not number.among(known)]
        found += [date for date in self.dates if date not in other.all_dates]
        for number in self.worded:
            said_so = number.text in other.folded and not number.units
            if not said_so and not number.among(known):
                found.append(number.text)
        return found


def broken(name: str, given: Mapping[str, str], value: Value) -> Broken:
    """What is wrong with the text of a task. Lost is what its `keep` fields demand."""
    task = load().task(name)
    source, said = "\n".join(given.values()), spoken(task, value)
    spoken_in = language(f"{source}\n{said}")
    has, says = Text(source, spoken_in), Text(said, spoken_in)
    lost = [fact.text for fact in _demanded(task, given, spoken_in) if not says.has(fact)]
    invented = says.invents(has) + unknown(
        _LINK.sub(lambda link: " " * len(link[0]), _names_in(task, value)),
        source,
        german=spoken_in == "de",
        message="to" in given,
    )
    return Broken(tuple(dict.fromkeys(lost)), tuple(dict.fromkeys(invented)))


def fault(name: str, given: Mapping[str, str], value: Value | None, whole: bool = True) -> str:
    """Why a text must not be used, "" where nothing is found: the check that every live text meets.

    It costs no model. A text that fails it is replaced by what code does, or the person is asked.
    """
    if value is None:
        return "is not well formed"
    if not whole:
        return "came to no end"
    if not in_language(name, given, value):
        return "is in another language"
    found = broken(name, given, value)
    return str(found) if found else ""


def in_language(name: str, given: Mapping[str, str], value: Value) -> bool:
    """False where a text is clearly in another language than the input (of a run, the request)."""
    task = load().task(name)
    source = given[task.fields[0].name] if task.keys else "\n".join(given.values())
    return same_language(source, spoken(task, value))


def kept(reference: str, source: str, said: str) -> bool:
    """Whether a text has every fact that its reference took from the source."""
    spoken_in = language(f"{source}\n{reference}")
    facts = Text(reference, spoken_in).facts()
    facts += [Fact("name", name) for name in names(reference, spoken_in == "de")]
    has, says = Text(source, spoken_in), Text(said, spoken_in)
    return all(says.has(fact) for fact in facts if has.has(fact))


def spoken(task: Task, value: Value) -> str:
    """The words of a value that are read: itself, or its texts (an id is none)."""
    if isinstance(value, str):
        return value
    return " ".join(
        str(value[key])
        for key in task.keys
        if isinstance(value[key], str) and key not in ("id", "cause")
    )


def _names_in(task: Task, value: Value) -> str:
    """Where names are looked for: not in a title, whose words all may be large."""
    if isinstance(value, str) or "title" not in task.keys:
        return spoken(task, value)
    return str(value["description"])


# What a change takes back: "not 2", "instead of 30", "450, now 420"; "zone 2 is done".
_TAKEN_BACK = re.compile(
    r"(?:\b(?:not|no|no longer|instead of|rather than|statt|anstatt|nicht|keine?[nmrs]?|au lieu de|"
    r"plutôt que|pas|en vez de|en lugar de|em vez de|não)\b|不是|不要)"
    r"(?:(?!\b(?:but|sondern|sino|mais|mas)\b)(?:[^,;:!?.，；]|[.:,](?=\d)))*"
    r"|\b\d(?:[^,;]|,(?=\d))*, ?(?=now\b|jetzt\b|maintenant\b|ahora\b|agora\b|现在)",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"(?:[^,;:.，；]|[.:,](?=\S))+")
_DONE = re.compile(
    r"\b(?:(?:is|are|was|were) (?:already )?(?:done|fine|ok|back|through)|worked|succeeded|already"
    r"|erledigt|fertig|geklappt|schon|revenue?s?|déjà|terminée?s?|list[oa]s?|hech[oa]s?|ya"
    r"|pront[oa]s?|feit[oa]s?|já)\b|已|成功|完成",
    re.IGNORECASE,
)


def _demanded(task: Task, given: Mapping[str, str], spoken_in: str | None) -> list[Fact]:
    """The facts that a text must have: those of the `keep` fields, and of what these change."""
    found: list[Fact] = []
    for field in task.keep:
        text = given[field]
        if task.changes:
            old, new = Text(given[task.changes], spoken_in), Text(text, spoken_in)
            named = {fact.kind for fact in new.facts()} | ({"date"} if new.all_dates else set())
            kinds = {"link", "date", "quotation"} - named
            found += [fact for fact in old.facts() if fact.kind in kinds]
            text = _CLAUSE.sub(lambda clause: "" if _DONE.search(clause[0]) else clause[0], text)
            text = _TAKEN_BACK.sub(" ", text)
        found += Text(text, spoken_in).facts()
    # An address that the message goes to need not stand in it.
    to = Text(given.get("to", ""), spoken_in)
    return [fact for fact in found if fact.kind != "link" or not to.has(fact)]


def _without_shorthand(text: str) -> str:
    short = lists().shorthand
    return _WORDLIKE.sub(lambda word: "" if word[0] in short else word[0], text)
