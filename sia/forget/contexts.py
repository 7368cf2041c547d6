"""What an iteration keeps when a part of it is forgotten."""

from __future__ import annotations

from dataclasses import replace

from sia.context import parse_iteration, to_xml
from sia.entries import Entry, Iteration, Response, Script, Text
from sia.forget.target import Target
from sia.forget.words import MARKS, in_xml
from sia.prompt import prompt
from sia.scripts.shown import Output

MARK = MARKS[0]


def rewritten(data: bytes, target: Target) -> tuple[bytes, int]:
    """(an iteration's file without it, how many places); ContextError for a damaged one.

    Decisions that saw it go. The hash of the prompt is that of what is left: of what was seen
    before even a hash would tell.
    """
    before = parse_iteration(data)
    after = _without(before, target)
    places = len(before.decisions) - len(after.decisions)
    places += sum(a != b for a, b in zip(before.entries, after.entries, strict=True))
    for name in ("queue", "process", "response"):
        places += getattr(after, name) != getattr(before, name)
    if target.words:
        stripped, times = in_xml(to_xml(after) if places else data, target.words)
        after, places = parse_iteration(stripped), places + times
    if not places:
        return data, 0
    if prompt(before).sha256 == before.prompt_sha256:
        after = replace(after, prompt_sha256=prompt(after).sha256)
    return to_xml(after), places


def _without(iteration: Iteration, target: Target) -> Iteration:
    decisions = tuple(view for view in iteration.decisions if view.id not in target.rows)
    entries = tuple(
        _blank(entry) if entry.id in target.entries else entry for entry in iteration.entries
    )
    iteration = replace(iteration, decisions=decisions, entries=entries)
    if target.kind != "run":
        return iteration
    run, process, response = target.value, iteration.process, iteration.response
    queue = tuple(replace(item, text=MARK) if item.id == run else item for item in iteration.queue)
    if process and process.run == run:
        process = replace(process, text=MARK)
    if response and iteration.run == run:
        response = Response(MARK, "code")
    return replace(iteration, queue=queue, process=process, response=response)


def _blank(entry: Entry) -> Entry:
    if isinstance(entry, Script):
        return replace(entry, command=Text(MARK), stdout=Output(), stderr=Output(), note="")
    return replace(entry, text=Text(MARK))
