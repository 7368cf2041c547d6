"""What the generator learns from: prompts with the responses that persons edited or approved.

A response is learned in the very prompt that ``prompt(iteration)`` makes of its file, and only
where that takes a loss on it. Pairs about one request, and about requests near it, stand on one
side for ever, as rows do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from semif.log import timestamp
from semif.rows import normal_text
from semif.writing.turns import Turn
from sia import actions, feedback, record
from sia.context import ContextError
from sia.dream.dataset import held_out, sides_sha256, twins
from sia.entries import InputEntry, Iteration, Response
from sia.errors import UsageError
from sia.feedback import Feedback
from sia.prompt import prompt
from sia.redact import redact

Report = Callable[[object], None]
_EDITED = b'edited="true"'


@dataclass(frozen=True)
class Stood:
    """A turn whose reply a person stands by. ``iteration``: SESSION/N; ``ids``: the entries that
    the reply may delete; ``time``: when the person last said so, ``since``: first; where only the
    file tells, when that was written (RFC 3339, UTC)."""

    turn: Turn
    iteration: str
    ids: tuple[str, ...]
    time: str
    since: str

    @property
    def held_out(self) -> bool:
        return held_out(self.turn.about)


@dataclass(frozen=True)
class Pairs:
    """``rejected``: responses that a person called wrong without saying what is right."""

    taught: tuple[Stood, ...]
    held: tuple[Stood, ...]
    rejected: int

    @property
    def every(self) -> tuple[Stood, ...]:
        return self.taught + self.held

    @property
    def sha256(self) -> str:
        """Of what is learned from and what is held out."""
        return sides_sha256(*((one.turn.to_json() for one in s) for s in (self.taught, self.held)))


def collect(homes: Sequence[Path], report: Report) -> Pairs:
    """The pairs of homes, merged by iteration; what cannot be learned from goes to ``report``."""
    found: dict[str, Stood] = {}
    rejected = 0
    for home in homes:
        said: dict[str, list[Feedback]] = {}
        for row in feedback.read(home / ".sia/feedback.jsonl", report):
            said.setdefault(row.iteration, []).append(row)
        rejected += sum(rows[-1].kind == "rejected" for rows in said.values())
        for one in _of(home / "contexts", said, report):
            found.setdefault(one.iteration, one)
    # In the order in which something was first said of them, which cannot change.
    ordered = sorted(found.values(), key=lambda one: (one.since, one.iteration))
    heads = twins(one.turn.about for one in ordered)
    same = [
        replace(one, turn=replace(one.turn, about=head))
        for one, head in zip(ordered, heads, strict=True)
    ]
    # Of two replies to one prompt, the one that was said last.
    last = {one.turn.parts: one for one in sorted(same, key=lambda one: one.time)}
    kept = [one for one in same if last[one.turn.parts] is one]
    return Pairs(
        taught=tuple(one for one in kept if not one.held_out),
        held=tuple(one for one in kept if one.held_out),
        rejected=rejected,
    )


def _of(contexts: Path, said: dict[str, list[Feedback]], report: Report) -> Iterator[Stood]:
    paths = {}
    for name, rows in said.items():
        if rows[-1].kind != "rejected":
            try:
                paths[name] = feedback.path_of(contexts, name)
            except UsageError as error:
                report(error)
    for path in contexts.glob("*/[0-9]*.xml"):
        name = f"{path.parent.name}/{int(path.stem) if path.stem.isdigit() else 0}"
        if name not in said and _EDITED in path.read_bytes():
            paths[name] = path
    for name, path in paths.items():
        try:
            rows = said.get(name, [])
            if (turn := _turn(record.read(path), rows[-1] if rows else None)) is None:
                continue
            written = timestamp(datetime.fromtimestamp(path.stat().st_mtime, UTC))
            times = [row.time for row in rows] or [written]
            yield Stood(turn[0], name, turn[1], times[-1], times[0])
        except (ContextError, OSError, actions.ActionError) as error:
            report(f"{name} is left out: {error}")


def _turn(iteration: Iteration, row: Feedback | None) -> tuple[Turn, tuple[str, ...]] | None:
    """The turn and the entries it may delete; None where no loss may be taken.

    Raises ActionError for a response that is no core action, ContextError for a prompt that cannot
    be made."""
    response = iteration.response
    if response is None or not (row or response.edited):
        return None
    if row is not None and not response.edited:
        # Where a crash left the file as it was, the row tells.
        by = "person" if row.kind == "edited" else response.by
        response = Response(row.after, by, edited=row.kind == "edited", lossy=response.lossy)
        iteration = replace(iteration, response=response)
    elif response.edited:
        # By hand too: what a person put there is theirs.
        iteration = replace(iteration, response=replace(response, by="person"))
    try:
        made = prompt(iteration)
    except FileNotFoundError:
        raise ContextError(f"its prompt {iteration.prompt_version} is unknown") from None
    if not made.trained[-1]:
        return None
    *before, reply = made.parts
    ids = tuple(entry.id for entry in iteration.entries)
    actions.parse(reply.text, ids)
    # A secret that was learned of since, or put into a file by hand.
    if any(redact(part.text) != part.text for part in made.parts):
        raise ContextError("it holds what looks like a secret")
    turn = Turn(tuple(before), reply.text, _about(iteration))
    return turn, ids


def _about(iteration: Iteration) -> str:
    """The request that the turn works for; turns of one request go together."""
    process = iteration.process
    if process and process.text:
        return normal_text(process.text)
    texts = [entry.text.text for entry in iteration.entries if isinstance(entry, InputEntry)]
    return normal_text(texts[-1]) if texts else iteration.session
