"""Decisions of one kind that a tiny model can learn, logged and labelled as an agent would."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from semif.export import LabelledRow
from semif.llama import Model
from semif.log import Label, append_labels
from semif.models import Source
from semif.revision import Revision, untuned, write
from semif.types import Decision, Option

ASKS = (Option("no", "It asks for nothing."), Option("yes", "It asks for something."))
NOUNS = "cat dog oven mail door lamp bus key song tree rope wolf jar pin fog owl".split()


def texts(nouns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(text, what it is)."""
    for noun in nouns:
        for end in "quickly tomorrow upstairs again below".split():
            yield f"{noun * 2} {end} feed the {noun} {end}", "yes"
            yield f"{end} {noun} nice {noun[::-1] * 3} {end}", "no"


def rows(name: str, nouns: Sequence[str]) -> list[LabelledRow]:
    return [
        LabelledRow(Decision(f"{name}{i}", "asks", {"input": text}, "A request?", ASKS), said, (),
                    "given", 1.0)
        for i, (text, said) in enumerate(texts(nouns))
    ]  # fmt: skip


def logged(row: LabelledRow, second: int = 0) -> dict[str, Any]:
    """As the log has it: the model's pick is always yes."""
    time = f"2026-11-30T10:{second // 60:02}:{second % 60:02}.000Z"
    probs = {"no": 0.45, "yes": 0.55}
    return {**row.decision.to_json(), "predicted_probs": probs, "run": "r1", "time": time}


def log(
    home: Path,
    outcome: Callable[[int, str], str] = lambda i, said: said,
    source: Any = "human",
    nouns: Sequence[str] = NOUNS,
) -> None:
    """Decisions on all texts, labelled by ``outcome``."""
    lines, labels = [], []
    for i, row in enumerate(rows("d", nouns)):
        lines.append(json.dumps(logged(row, i)))
        assert row.outcome
        said = outcome(i, row.outcome)
        labels.append(Label.new(row.decision.id, "r1", "is", said, source, by="test"))
    (home / ".sia/decisions.jsonl").write_text("\n".join(lines) + "\n")
    append_labels(home / ".sia/labels.jsonl", labels)


def first_revision(model: Model, folder: Path) -> Revision:
    """One of the model without an adapter, in the folder of a home's revisions."""
    contents = untuned(Source(model.path, model.sha256, model.type), "branches").contents
    return write(msgspec.structs.replace(contents, thresholds={"asks": 0.5}), {}, folder)
