"""Looks through the notes and shows the one that is meant, or a line of each that fits."""

from __future__ import annotations

import re

from sia import notes
from sia.notes import Note
from sia.skills.api import Ctx, Failed
from sia.web import one_line, plain

_SHOWN, _LISTED = 2_000, 10  # characters of one note, notes listed
_ONE = re.compile(r"\b(?:read|open|show|what (?:is|was|does|did)|zeig|lies|was steht)\b", re.I)
_ALL = re.compile(r"\b(?:list|all|which|alle)\b.*\bnot(?:es?|izen)\b", re.I)
_COMMON = frozenset(
    "a about all an and any are called did do does down find for from get have i in is it jot list "
    "look me my named note noted notes of on open our out please read say says search see show "
    "tell that the there they this to up was were what when where which with write written wrote "
    "you das der die in meine notiz notizen suche über was zeig".split()
)


def find(ctx: Ctx) -> None:
    folder = ctx.folders.notes
    if not folder.is_dir():
        raise Failed(f"There is no folder of notes: {folder}.", "environment")
    every, words = notes.load(folder), _words(ctx.request)
    if not every:
        ctx.say("There are no notes yet.")
    elif not words and _ALL.search(ctx.request):
        _list(ctx, every, [], f"{len(every)} note{'s' * (len(every) > 1)}")
    else:
        words = words or _words(ctx.ask("Which note: what is it called, or what is in it?"))
        _found(ctx, every, words)


def _found(ctx: Ctx, every: list[Note], words: list[str]) -> None:
    scored = [(notes.hits(note, words), note) for note in every] if words else []
    most = max((score[1] for score, _ in scored), default=0)
    if not most:
        ctx.say("Nothing of that is noted.")
        return
    fit = [(score, note) for score, note in scored if score[1] == most]
    named = max(score[0] for score, _ in fit)
    best = [note for score, note in fit if score[0] == named] if named else []
    shown = best if best else [note for _, note in fit]
    exact = [note for note in shown if any(_words(name) == words for name in note.names)]
    shown = exact if len(exact) == 1 else shown
    if len(shown) > 1 and _ONE.search(ctx.request) and named and len(shown) <= _LISTED:
        options = [(f"n{n}", one_line(_place(ctx, note), 80)) for n, note in enumerate(shown, 1)]
        chosen = ctx.choose("Which note is meant?", options, none=True)
        ids = [id for id, _ in options]
        shown = [shown[ids.index(chosen)]] if chosen in ids else shown
    if len(shown) == 1:
        _show(ctx, shown[0])
    else:
        _list(ctx, shown, words, f"{len(shown)} notes fit")


def _show(ctx: Ctx, note: Note) -> None:
    text = plain(note.text)
    if len(text) > _SHOWN:
        head, whole = text[:_SHOWN].rsplit(None, 1)[0], len(text)
        text = f"{head} …\n(The first {_SHOWN:,} of {whole:,} characters.)"
    ctx.say(f"{_place(ctx, note)}:\n{text or '(empty)'}")


def _list(ctx: Ctx, found: list[Note], words: list[str], head: str) -> None:
    more = f", the newest {_LISTED}" if len(found) > _LISTED else ""
    rows = [
        f"- {_place(ctx, note)}: {one_line(notes.line_with(note, words), 100)}"
        for note in found[:_LISTED]
    ]
    ctx.say("\n".join([f"{head}{more}:", *rows]))


def _place(ctx: Ctx, note: Note) -> str:
    """Its name, after the folder it lies in."""
    return one_line(str(note.file.relative_to(ctx.folders.notes).with_suffix("")))


def _words(text: str) -> list[str]:
    found = re.findall(r"[^\W_]+(?:[-'’][^\W_]+)*", notes.key(text))
    return [word for word in dict.fromkeys(found) if word not in _COMMON]
