"""Which mail a request means, and what a reply should say, by rule.

A rule reads only what stands in the words: from whom, about what, from when, unread, the newest.
What is left open is chosen among the messages that fit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date

from sia import contacts, periods, wording

MOST_TEXT = 1000  # characters of a request that say which mail is meant
_I = re.IGNORECASE | re.DOTALL
_MAIL = r"(?:e-?mails?|mails?|messages?|letters?|newsletters?|nachrichten?|mail)"
_END = (
    r"(?=\s+(?:about|regarding|concerning|on|with|that|where|which|saying|and|since|in\s+my|to\s+me|today"
    r"|yesterday|über|wegen|dass)\b|['’]s\b|\s*[.,;:?!](?=\s|$)|\s*$)"
)
_FROM = re.compile(rf"\b(?:from|by|von)\s+(?P<who>(?:(?:my|our|the)\s+)?[^\s,;:?!].*?){_END}", _I)
_OWNER = re.compile(
    rf"\b(?P<who>[\w.@+-]+)['’]s\s+(?:(?:last|latest|newest|new|unread)\s+)?{_MAIL}\b", _I
)
_WROTE = re.compile(
    r"\b(?:did|has|have|what\s+(?:did|does))\s+(?P<who>.+?)\s+(?:writ|e-?mail|mail|repl|answer|say|send"
    r"|sent|want)",
    _I,
)
_TO = re.compile(
    rf"^(?:reply|respond|answer|write\s+back|antworte)\s+(?:to\s+)?(?P<who>.+?){_END}", _I
)
_ABOUT = re.compile(
    r"\b(?:about|regarding|concerning|mentioning|containing|with\s+(?:the\s+)?(?:subject|words?)|for"
    r"|über|wegen)\s+(?P<what>[^,;?!]+)",
    _I,
)
_QUOTED = re.compile(r"[\"“„«](?P<what>[^\"”“»]+)[\"”“»]")
_UNREAD = re.compile(rf"\bunread\b|\bungelesene?\b|\b(?:new|neue)\s+{_MAIL}\b|\bnew\s+in\b", _I)
_NEWEST = re.compile(r"\b(?:last|latest|newest|most\s+recent|letzten?|neuesten?)\b", _I)
_MANY = re.compile(
    r"\b(?:e-?mails|mails|messages|inbox|new\s+mail|unread\s+mail|posteingang)\b", _I
)
_NOBODY = frozenset(
    "a all an any anybody anyone him her it me my somebody someone that the them this us you "
    "yesterday today".split()
)
_COMMON = frozenset(
    "a about all aloud an and answer any anything are at can concerning containing could das "
    "der did die do does e email emails find finde for from get give got has hat have i in "
    "inbox is it last latest letter lies list look looking loud mail mailbox mails me mein "
    "meine mention mentioning mentions message messages mich mine mir my nachricht "
    "nachrichten new newest of on one ones or out please read receive received recent "
    "regarding reply say search sent show subject suche sum summarise summarize summary tell "
    "that the there this through to unread up was were what when where which who with word "
    "words write wrote you your zeig".split()
)
_THE_BODY = re.compile(
    r"(?P<head>.*?)(?<![\s,])[\s,]*+\b(?:saying|and\s+(?:say|write|tell\s+(?:him|her|them))|to\s+say|that|dass)\b"
    r"(?:\s+that\b)?\s+(?P<body>.+)",
    _I,
)
_EXACT = re.compile(
    r"(?P<head>.*?)(?<![\s,:])[\s,:]*+(?:\bwith\s+)?[\"“„«](?P<body>.+)[\"”“»]\s*[.!]?", _I
)
_COLON = re.compile(r"(?P<head>[^:]{2,100}):\s+(?P<body>.+)", _I)
_REPLY = re.compile(r"\b(?:reply|respond|answer|write\s+back|antworte)\b", _I)


@dataclass(frozen=True)
class MailWords:
    sender: str = ""  # the words that say from whom
    words: tuple[str, ...] = ()  # that should stand in it
    since: date | None = None
    until: date | None = None  # before this day
    unread: bool = False
    newest: bool = False
    many: bool = False  # more than one is meant


def read(request: str, today: date) -> MailWords:
    """What a request to read, search, summarise or answer mail says about which."""
    text = " ".join(request[:MOST_TEXT].split())
    unread, many = bool(_UNREAD.search(text)), bool(_MANY.search(text))
    since, until, text = periods.past(text, today)
    newest = bool(_NEWEST.search(text))  # and not "last week"
    quoted = [match["what"] for match in _QUOTED.finditer(text)]
    text = _QUOTED.sub(" ", text).strip()
    sender = ""
    for rule in (_FROM, _OWNER, _WROTE, _TO):
        match = rule.search(text)
        who = match["who"].strip() if match else ""
        if match and contacts.words(who) - _NOBODY - _COMMON:
            sender = who
            text = f"{text[: match.start()]} {text[match.end('who') :]}"
            break
    text = re.sub(r"['’]s\b", " ", text)
    about = _ABOUT.search(text)
    plain = re.findall(r"\w[\w.@-]*\w|\w", about["what"] if about else text)
    words = [word for word in plain if word.casefold() not in _COMMON]
    return MailWords(sender, (*quoted, *words[:6]), since, until, unread, newest, many)


def answer(request: str) -> tuple[str, str, str]:
    """(which mail, the text of the reply, what was found instead of a text) of "reply to ..."."""
    text = wording.plain(request)
    for rule, make in (
        (_EXACT, wording.exact),
        (_COLON, wording.stated),
        (_THE_BODY, wording.stated),
    ):
        match = rule.fullmatch(text)
        if match and _REPLY.search(match["head"]):
            return match["head"], *make(match["body"])
    return text, "", ""
