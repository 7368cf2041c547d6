"""What a revision says on labelled rows, asked of the engine; on the golden set, kept beside it."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from semif.engine import Engine
from semif.errors import SemifError
from semif.export import LabelledRow
from semif.inputs import Entry
from semif.jsonl import write_whole
from semif.llama import Model
from semif.measuring.evaluate import Advance, evaluate, orders
from semif.measuring.paired import Said
from semif.revision import Revision
from semif.rows import data_sha256, golden, golden_data, normal_text
from semif.types import Decider

TIMED = 40  # decisions asked of both sides in turns
FILE = "golden.json"


class Unscored(SemifError):
    """A row that cannot be scored: the two sides could not be compared."""


@dataclass(frozen=True)
class Examiner:
    """Asks revisions of one model. ``threads``, ``context``: as the agent decides with.

    ``advance`` hears how many rows were asked.
    """

    model: Model
    threads: int
    context: int
    advance: Advance = lambda rows: None

    def engine(self, revision: Revision) -> Engine:
        return Engine(self.model, revision, self.threads, self.context)

    def ask(
        self, revision: Revision, rows: Sequence[LabelledRow], texts: Sequence[str]
    ) -> tuple[list[Said], int]:
        """What it says, in order, and how many selections the order of options changes.

        ``texts``: by row, what it is about: rows of one text belong together.
        Raises Unscored for a row that cannot be scored.
        """
        entries = [Entry("dataset", row.decision.id, row) for row in rows]
        judged = evaluate(
            self.engine(revision),
            entries,
            _refuse,
            orders(revision.contents.readout),
            advance=self.advance,
        )
        said = [Said.judged(one, text) for one, text in zip(judged, texts, strict=True)]
        return said, sum(bool(one.flipped) for one in judged)

    @cached_property
    def golden_rows(self) -> list[LabelledRow]:
        return golden()

    @cached_property
    def golden_sha256(self) -> str:
        return data_sha256(golden_data())

    def golden(self, revision: Revision, kept: Path) -> list[Said]:
        """What it says on the golden set: as it stands beside the revision or in the folder
        ``kept``, where it is put when it had to be asked."""
        for folder in filter(None, (revision.folder, kept / revision.id)):
            if (found := self._read(folder / FILE)) is not None:
                return found
        entries = [Entry("golden", row.decision.id, row) for row in self.golden_rows]
        judged = evaluate(self.engine(revision), entries, _refuse, advance=self.advance)
        said = [Said.judged(one, normal_text(one.row.decision.state)) for one in judged]
        (kept / revision.id).mkdir(parents=True, exist_ok=True)
        write_whole(kept / revision.id / FILE, self.golden_json(said))
        return said

    def golden_json(self, said: Sequence[Said]) -> bytes:
        whole = {"golden_sha256": self.golden_sha256, "rows": [asdict(row) for row in said]}
        return json.dumps(whole, ensure_ascii=False).encode() + b"\n"

    def _read(self, path: Path) -> list[Said] | None:
        """None where there is none, or one of another golden set."""
        try:
            whole = json.loads(path.read_bytes())
            if whole["golden_sha256"] != self.golden_sha256:
                return None
            return [Said(**row) for row in whole["rows"]]
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, KeyError, TypeError):
            return None  # damaged: asked again

    def latency(
        self, old: Revision, new: Revision, rows: Sequence[LabelledRow]
    ) -> tuple[list[float], list[float]]:
        """Milliseconds of single decisions, asked of both in turns, so that whatever else the
        machine does strikes both alike."""
        engines = self.engine(old), self.engine(new)
        asked = [row.decision for row in rows[:: max(1, len(rows) // TIMED)][:TIMED]]
        times: tuple[list[float], list[float]] = ([], [])
        for decision in asked[:3]:
            for engine in engines:
                engine.decide([decision])
        for index, decision in enumerate(asked):
            for side in (0, 1) if index % 2 else (1, 0):
                began = time.perf_counter()
                engines[side].decide([decision])
                times[side].append((time.perf_counter() - began) * 1000)
        return times


def same(decider: Decider, kept: Path, rows: Sequence[LabelledRow], count: int) -> float:
    """Of ``count`` golden rows, the share that is decided as ``kept``, a revision's file, says."""
    whole = json.loads(kept.read_bytes())
    known = {row["id"]: row["selected"] for row in whole["rows"]}
    some = [row for row in rows if row.decision.id in known]
    some = some[:: max(1, len(some) // count)][:count]
    answers = decider.decide([row.decision for row in some])
    hits = [answer.selected == known[answer.decision.id] for answer in answers]
    return statistics.fmean(hits) if hits else 0.0


def _refuse(problem: object) -> None:
    raise Unscored(str(problem))
