"""What a request wants written, by rule: who is meant, and the message in the person's own words.

A rule is used only where its result is right whenever it applies: "tell Anna I will be late" is the
message "I will be late.", but who "she" is in "ask Anna whether she can come" no rule knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_I = re.IGNORECASE | re.DOTALL
_POLITE = re.compile(
    r"(?:(?:hey|hi|hello|ok|okay|and|sia|please|bitte|(?:can|could|would|will) you"
    r"|i (?:want|need|would like) (?:you )?to)\b[\s,]*)*",
    re.IGNORECASE,
)
_SUBJECT = re.compile(
    r",?\s*\b(?:with\s+)?(?:the\s+)?subject(?:\s+line)?\s*:?\s+"
    r"(?:[\"“„](?P<quoted>[^\"”“]+)[\"”“]|(?P<plain>.+?))(?=$|,|;|\s+(?:and|that\s+says|saying)\b)",
    _I,
)
_MAIL = r"(?:write|send|compose|draft|e-?mail|mail|message|text|drop|shoot|schreib|schick)\b"
_SAYS = r"(?:(?:that|which|and|to|just|only)\s+)*(?:says?|saying)\b"
# From the start of a run of commas and no other place: else a long one takes minutes.
_EXACT = re.compile(
    rf"(?P<head>.*?)(?<![\s,:])[\s,:]*+(?:{_SAYS}[\s,:]*+)?[\"“„«](?P<body>.+)[\"”“»]\s*[.!]?", _I
)
_COLON = re.compile(r"(?P<head>[^:\d]{2,100}):\s+(?P<body>.+)", _I)
_SAID = re.compile(rf"(?P<head>{_MAIL}.*?),?\s+{_SAYS}(?:\s+that\b)?\s+(?P<body>.+)", _I)
# Who is told: a few words, none of which begins another thing ("send Anna the report that ...").
_WORD = r"(?!(?:about|of|the|an?|my|our|that|if|i|we)\b)[\w.@+-]+"
_WHO = rf"(?:(?:my|our|the)\s+)?{_WORD}(?:\s+{_WORD}){{0,2}}?"
_NOTE = r"an?\s+(?:(?:short|quick|new)\s+)?(?:e-?mail|mail|message|text|note|line)"
_THAT = re.compile(
    rf"(?P<head>(?:tell|inform|notify|let|write|e-?mail|mail|message|text)\s+(?:to\s+)?{_WHO}"
    rf"|(?:send|write|drop|shoot)\s+(?:{_WHO}\s+{_NOTE}|{_NOTE}\s+to\s+{_WHO}))"
    r"(?:\s+know)?,?\s+that\s+(?P<body>.+)",
    _I,
)
_KNOW = re.compile(rf"let\s+(?P<head>{_WHO})\s+know,?\s+(?P<body>.+)", _I)
_WHETHER = re.compile(rf"ask\s+(?P<head>{_WHO})\s+(?:whether|if)\s+(?P<body>.+)", _I)
_TO_DO = re.compile(rf"(?:ask|tell)\s+(?P<head>{_WHO})\s+(?P<body>(?:not\s+)?to\s+.+)", _I)
_TELL = re.compile(rf"(?:tell|inform|notify|{_MAIL})\s+(?:to\s+)?(?P<body>.+)", _I)
_NOT_NAMES = re.compile(
    rf"(?<![\w.@-])(?:tell|inform|notify|ask|let|know|{_MAIL}|e-?mails?|messages?|note|line|an?|to|for"
    r"|please|short|quick|new|saying|says?|that|which|him|her)(?![\w.@-])",
    re.IGNORECASE,
)
_PRONOUN = re.compile(
    r"(?:i|im|we|it|its|there|this|they|everything|everyone|nothing|nobody)\b(?:['’]\w+)?", _I
)
_VERB = re.compile(
    r"\b(?:is|are|was|were|will|would|has|have|had|can|could|should|must|may|might|does|do|did)\b"
    r"|\w['’](?:re|ll|ve|d|t)\b",
    re.IGNORECASE,
)
_UNCLEAR = re.compile(r"\b(?:s?he|him|her|his|hers|himself|herself)\b", re.IGNORECASE)
_BY_MAIL = re.compile(r"[\s,]+(?:by|via|per|in an?)\s+e-?mail\s*[.!]?$|[\s,]+please\s*[.!]?$", re.I)
_QUESTION = re.compile(
    r"(?P<who>i|we|it|there)\s+(?P<aux>am|is|are|was|were|can|could|should|may|will|would|must|shall)"
    r"\s+(?P<rest>.+)",
    _I,
)


@dataclass(frozen=True)
class Wording:
    recipient: str  # the words that name who is meant, among others
    body: str  # the finished message; "" where no rule is sure
    unclear: str = ""  # what was found instead, to show when the person is asked
    subject: str = ""  # given in the request


def read(request: str) -> Wording:
    """What can be read without knowing the contacts; "tell Anna I ..." needs ``told``."""
    text = plain(request)
    given = _SUBJECT.search(text)
    subject = (given["quoted"] or given["plain"]).strip() if given else ""
    text = text[: given.start()] + text[given.end() :] if given else text
    for pattern, make in _RULES:
        match = pattern.fullmatch(text)
        if match:
            body, unclear = make(match["body"])
            return Wording(_names(match["head"]), body, unclear, subject)
    told, to_do = _TELL.fullmatch(text), _TO_DO.fullmatch(text)
    words = list(re.finditer(r"\S+", told["body"])) if told else []
    start = next((word.start() for word in words if _PRONOUN.fullmatch(word[0])), 0)
    head = told["body"][:start] if told and start else to_do["head"] if to_do else text
    return Wording(_names(head), "", "", subject)


def unnamed(request: str, people: Sequence[Sequence[str]]) -> str:
    """The request on one line without its subject, and with (name, address) people by their name:
    neither belongs into the message."""
    line = " ".join(request.split())
    if given := _SUBJECT.search(line):
        line = f"{line[: given.start()]} {line[given.end() :].lstrip(' ,;')}".strip()
    for name, email in people:
        line = line.replace(email, name) if name else line
    return line or request


def told(request: str, called: frozenset[str]) -> tuple[str, str]:
    """(body, unclear) of "tell Anna I will be late", "tell Anna to ...": called are her words."""
    text = plain(request)
    names = "|".join(sorted(map(re.escape, called), key=len, reverse=True)) or r"(?!)"
    who = rf"(?:(?:my|our|the|dr|mrs?|ms)\.?\s+)?(?:(?:[\w.+-]+@[\w.-]+|(?:{names})\b)[\s,.-]*)+"
    to_do = _TO_DO.fullmatch(text)
    if to_do and re.fullmatch(who, to_do["head"], _I):
        return _done(to_do["body"])
    match = _TELL.fullmatch(text)
    after = match and re.match(who, match["body"], _I)
    body = match["body"][after.end() :] if match and after else ""
    if re.match(r"(?:about|how|when|why|what|where)\b", body, _I):
        return "", ""
    return stated(body) if _PRONOUN.match(body) or _VERB.search(body) else ("", "")


def subject_of(body: str, most: int = 60) -> str:
    """The first sentence of the message, cut at a word."""
    first = re.split(r"(?<=[.!?])\s|\n", body.strip(), maxsplit=1)[0].rstrip(".")
    if len(first) <= most:
        return first
    return first[:most].rsplit(" ", 1)[0].rstrip(" ,;:") + " …"


def sentence(text: str) -> str:
    """The person's words with a capital, "I" and a full stop."""
    text = re.sub(r"(?<![\w.])i(?=$|[\s,.!?]|['’](?:m|ll|ve|d)\b)", "I", text.strip(" ,;"))
    if re.match(r"[^\W\d_]+(?:['’][a-z]+)?[,.!?]?(?:\s|$)", text) and text.split(" ")[0].islower():
        text = text[:1].upper() + text[1:]
    return text if text[-1:] in ".!?…" else f"{text}."


def _names(head: str) -> str:
    return " ".join(_NOT_NAMES.sub(" ", re.split(r"\babout\b", head, flags=_I)[0]).split())


def plain(request: str) -> str:
    """The request on one line without "could you please"; a question mark then belonged to that."""
    line = " ".join(request.split())
    polite = _POLITE.match(line)
    assert polite  # it may be empty
    asked = re.search(r"\b(?:can|could|would|will) you\b", polite[0], re.IGNORECASE)
    return line[polite.end() :].rstrip("? ") if asked else line[polite.end() :]


def exact(body: str) -> tuple[str, str]:
    """(body, unclear) of words that are to stand as they are."""
    return body.strip(), ""


def stated(body: str) -> tuple[str, str]:
    """(body, unclear) of what somebody is to be told; unclear where it says he or she."""
    body = _BY_MAIL.sub("", body)
    return ("", sentence(body)) if _UNCLEAR.search(body) else (sentence(body), "")


def _known(body: str) -> tuple[str, str]:
    """let Anna know I am late; not: let Anna know when, about, whether."""
    return stated(body) if _PRONOUN.match(body) else ("", body)


def _asked(body: str) -> tuple[str, str]:
    match = _QUESTION.fullmatch(_BY_MAIL.sub("", body).rstrip(" .?!"))
    if match is None or _UNCLEAR.search(body):
        return "", body
    who = "I" if match["who"].lower() == "i" else match["who"].lower()
    return f"{match['aux'].capitalize()} {who} {match['rest']}?", ""


def _done(body: str) -> tuple[str, str]:
    """to bring the keys, not to come: Please ..."""
    negative = re.match(r"not\s+to\s+|to\s+not\s+", body, _I)
    rest = body[negative.end() :] if negative else re.sub(r"^to\s+", "", body, flags=_I)
    return stated(f"please {'do not ' if negative else ''}{rest}")


_RULES: tuple[tuple[re.Pattern[str], Callable[[str], tuple[str, str]]], ...] = (
    (_EXACT, exact),
    (_SAID, stated),
    (_WHETHER, _asked),
    (_COLON, exact),
    (_THAT, stated),
    (_KNOW, _known),
)
