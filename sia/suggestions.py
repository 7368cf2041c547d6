"""``.sia/suggestions.jsonl``: what was asked for and no skill covers, appended row by row.

A first row says what was suggested; later ones with the same id, that it was asked for again, that
a skill covers it now, that it was done or is not wanted. Texts are redacted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from semif.jsonl import Problem, append, numbered_rows
from semif.log import timestamp
from semif.types import Answer
from sia.errors import UsageError
from sia.redact import redact
from sia.store import Run, Store

Event = Literal["suggested", "repeated", "covered", "done", "dropped"]
OPEN = ("suggested", "covered")


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line. kind: create_category | create_skill. category: the one that came closest.
    request: id, source, urgency and time of arrival of its run. state: what the decisions saw.
    decisions: the model's output, with probabilities. proposal: a category that was written and
    not made. skill: that covers it."""

    id: Annotated[str, msgspec.Meta(pattern="^s[1-9][0-9]{0,8}$")]
    event: Event
    time: str
    kind: str = ""
    category: str = ""
    query: str = ""
    request: dict[str, Any] = {}
    state: dict[str, str] = {}
    decisions: list[dict[str, Any]] = []
    proposal: dict[str, str] | None = None
    skill: str = ""

    def to_json(self) -> dict[str, Any]:
        return msgspec.to_builtins(self)


@dataclass(frozen=True)
class Suggestion:
    """A first row as it stands now. status: suggested | covered | done | dropped. count: how often
    it was asked for. requests: of every time."""

    first: Row
    status: str
    count: int
    skill: str
    requests: tuple[Mapping[str, Any], ...]

    @property
    def id(self) -> str:
        return self.first.id

    @property
    def query(self) -> str:
        return self.first.query

    @property
    def open(self) -> bool:
        return self.status in OPEN

    def text(self, store: Store) -> str:
        """The request as it was made: the file lacks its secrets, the database has them."""
        run = store.run(self.first.request.get("id", ""))
        return run.text if run and redact(run.text) == self.query else self.query


def plain(text: str) -> str:
    """Words alone: two texts that agree in them ask for the same."""
    return " ".join(re.findall(r"\w+", redact(text).casefold())) or text


def request_of(run: Run) -> dict[str, Any]:
    return {
        "id": run.id,
        "source": run.source,
        "urgency": round(run.urgency, 4),
        "arrived": timestamp(run.arrived),
        "attempt": run.attempt,
    }


def output(answer: Answer) -> dict[str, Any]:
    """What the model said, as a suggestion shows it."""
    return {
        "id": answer.decision.id,
        "phase": answer.decision.phase,
        "selected": answer.selected,
        "probs": {name: round(p, 4) for name, p in answer.probs.items()},
        "logits": dict(answer.logits),
        "revision": answer.revision,
        "prompt_sha256": answer.prompt_sha256,
    }


def load(path: Path, on_problem: Callable[[Problem], None] = lambda _: None) -> list[Suggestion]:
    """All of a file, oldest first; a line that is none of ours is reported and passed over."""
    found: dict[str, Suggestion] = {}
    for number, data in numbered_rows(path, on_problem):
        try:
            row = msgspec.convert(data, Row)
        except msgspec.ValidationError as error:
            on_problem(Problem(path, number, f"no suggestion ({error})"))
            continue
        if row.event == "suggested":
            found.setdefault(row.id, Suggestion(row, row.event, 1, "", (row.request,)))
        elif row.id in found:
            found[row.id] = _after(found[row.id], row)
    return list(found.values())


def _after(item: Suggestion, row: Row) -> Suggestion:
    if row.event != "repeated":
        return replace(item, status=row.event, skill=row.skill or item.skill)
    requests = (*item.requests, row.request)
    return replace(item, count=len(requests), requests=requests)


class Suggestions:
    """The file of one home. Only the running agent suggests; anybody may mark."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def all(self) -> list[Suggestion]:
        return load(self.path)

    def open(self) -> list[Suggestion]:
        return [item for item in self.all() if item.open]

    def get(self, id: str) -> Suggestion:
        """Raises UsageError."""
        for item in self.all():
            if item.id == id:
                return item
        raise UsageError(f"there is no suggestion {id}; `sia suggestions` lists them")

    def suggest(
        self,
        run: Run,
        kind: str,
        category: str,
        state: Mapping[str, str],
        decisions: Sequence[Mapping[str, Any]],
        proposal: Mapping[str, str] | None = None,
        same_as: Callable[[list[Suggestion]], int] = lambda _: -1,
    ) -> tuple[Suggestion, Row | None]:
        """Note a request that no skill covers, once a run: as a new suggestion, or as a repeat of
        an open one with the same words, or the one ``same_as`` finds (its index, or -1).

        Gives it, and the row written: None when it was noted before.
        """
        items = self.all()
        request = request_of(run)
        for item in items:
            if any(_same_request(request, other) for other in item.requests):
                return item, None
        still = [item for item in items if item.open]
        row = Row(
            id=f"s{1 + max((int(item.id[1:]) for item in items), default=0)}",
            event="suggested",
            time=timestamp(datetime.now(UTC)),
            kind=kind,
            category=category,
            query=redact(run.text),
            request=request,
            state=dict(state),
            decisions=[dict(item) for item in decisions],
            proposal=dict(proposal) if proposal else None,
        )
        number = _by_words(row.query, still)
        number = same_as(still) if number < 0 else number
        if number >= 0:
            row = msgspec.structs.replace(row, id=still[number].id, event="repeated")
            self._append(row)
            return _after(still[number], row), row
        self._append(row)
        return Suggestion(row, "suggested", 1, "", (request,)), row

    def done(self, text: str, skill: str) -> None:
        """A skill was found for a request with these words."""
        still = self.open()
        number = _by_words(text, still)
        if number >= 0:
            self.mark(still[number].id, "done", skill)

    def mark(self, id: str, event: Event, skill: str = "") -> None:
        self._append(Row(id=id, event=event, time=timestamp(datetime.now(UTC)), skill=skill))

    def _append(self, row: Row) -> None:
        append(self.path, [row.to_json()])


def _same_request(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return (one.get("id"), one.get("arrived")) == (other.get("id"), other.get("arrived"))


def _by_words(text: str, items: Iterable[Suggestion]) -> int:
    words = plain(text)
    return next((n for n, item in enumerate(items) if plain(item.query) == words), -1)
