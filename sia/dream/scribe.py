"""What a revision writes as replies to turns that are held out, and the gate for that.

The lines are those of the gate for decisions, as far as text has them: loss on what is held out,
with how sure that is; and nothing that could be done before may be lost.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any

from semif.llama import Model, sha256_file
from semif.measuring import paired
from semif.measuring.paired import Said
from semif.revision import Revision
from semif.writing import measure, pairs
from semif.writing.pairs import data_sha256
from semif.writing.pin import ACT, METRICS, prompts
from semif.writing.report import Settings, report
from semif.writing.tasks import VERSION
from sia import actions
from sia.dream.pairs import Stood
from sia.dream.proof import PHASE_P, PHASE_POINTS, Line, Proof, held
from sia.generator.local import LocalGenerator

MOST = 120  # replies that are measured, of the last that were said; each is written in full


@dataclass(frozen=True)
class Replied:
    """What one revision makes of held-out turns: ``forms`` is right where the reply is a whole core
    action, ``kinds`` where it is also the kind of action that the person stands by. ``loss``: nats
    a token of the person's reply."""

    forms: tuple[Said, ...]
    kinds: tuple[Said, ...]

    def figures(self) -> dict[str, Any]:
        return {
            "rows": len(self.kinds),
            "well_formed": _share(self.forms),
            "kind": _share(self.kinds),
            "nll": round(statistics.fmean(row.loss for row in self.kinds), 4)
            if self.kinds
            else None,
        }


@dataclass(frozen=True)
class Scribe:
    """Lets adapters of one model write. ``context``, ``max_tokens``: as the agent writes with.

    ``wait`` is called between texts, and between the words of a reply.
    """

    model: Model
    threads: int
    context: int
    max_tokens: int
    say: Callable[[str], None]
    wait: Callable[..., None] = lambda *_: None

    def fits(self, one: Stood) -> int:
        """Tokens of the turn and its reply; more than ``context`` cannot be answered at all."""
        from semif.chat import Chat

        text = self.model.tokenize(one.turn.output, special=False)
        return len(Chat(self.model).tokens(one.turn.parts)) + len(text) + 1

    def replies(self, adapter: Path | None, held: Sequence[Stood]) -> Replied:
        """What is written with an adapter, or by the base alone."""
        loaded = self.model.adapter(adapter) if adapter else None
        generator = LocalGenerator(
            self.model,
            n_ctx=self.context,
            threads=self.threads,
            max_tokens=self.max_tokens,
            acts=loaded,
        )
        forms, kinds = [], []
        try:
            for one in held:
                self.wait()
                turn = one.turn
                loss = generator.nll(turn.parts, turn.output)
                reply = generator.reply(turn.parts, ids=one.ids, cancel=Event(), on_text=self.wait)
                whole = reply.finish == "stop" and _parses(reply.text, one.ids)
                kind = _kind(reply.text)
                row = Said(
                    id=one.iteration, phase=ACT, text=turn.about, weight=1.0, loss=loss,
                    brier=0.0, right=whole, top=0.0, selected=kind,
                )  # fmt: skip
                forms.append(row)
                kinds.append(replace(row, right=whole and kind == _kind(turn.output)))
        finally:
            generator.close()
        return Replied(tuple(forms), tuple(kinds))

    def golden(self, revision: Revision, adapter: Path) -> dict[str, Any]:
        """What an adapter is worth at the writing tasks: as the revision says it, or measured."""
        rows = pairs.read(pairs.golden())
        known = revision.contents.metrics.get(METRICS, {})
        if (
            known.get("adapter_sha256") == sha256_file(adapter)
            and known.get("golden_sha256") == data_sha256(rows)
            and known.get("prompts") == prompts(revision).version == VERSION
        ):
            return dict(known)
        settings = Settings(adapter, base_rows=0, threads=self.threads, advance=self.wait)
        return report(self.model, revision.contents.base.sha256, rows, settings, self.say)


def acting(revision: Revision) -> Path | None:
    """The adapter that a revision answers turns with."""
    return revision.write_path if ACT in revision.contents.metrics else None


def prove(
    old: Replied,
    new: Replied,
    golden: tuple[Mapping[str, Any], Mapping[str, Any]],
    proven: frozenset[str],
) -> Proof:
    """The lines of the gate. ``golden``: figures by writing task before and after; ``proven``: the
    tasks the parent is proven for."""
    return Proof(
        (
            held(old.kinds, new.kinds, "pairs", " a token"),
            _kept("form", "replies that are whole core actions", old.forms, new.forms),
            _kept("kind", "replies of the kind that the person stands by", old.kinds, new.kinds),
            _writing(*golden, proven),
        )
    )


def _kept(name: str, what: str, old: Sequence[Said], new: Sequence[Said]) -> Line:
    if not old:
        return Line(name, False, "no pair is held out")
    lost, p = paired.worse(old, new)
    text = (
        f"{what}: {100 * _share(old):.1f} % to {100 * _share(new):.1f} %; may fall by "
        f"{PHASE_POINTS:g} points, or with p above {PHASE_P}"
    )
    return Line(name, not (lost > PHASE_POINTS and p < PHASE_P), text)


def _writing(old: Mapping[str, Any], new: Mapping[str, Any], proven: frozenset[str]) -> Line:
    """A figure with a bar may fall by two points: of 90 rows, two."""
    worst = []
    for task in sorted(proven & measure.bars().keys() - {ACT}):
        found = new.get(task, {})
        worst += [f"{task}: {why}" for why in measure.short_of(task, found)]
        for figure in measure.bars()[task]:
            points = 1 if figure == "chrf" else 100
            fall = points * (old.get(task, {}).get(figure, 0.0) - (found.get(figure) or 0.0))
            if fall > PHASE_POINTS:
                worst.append(f"{task} loses {fall:.1f} points of {figure}")
    text = "; ".join(worst) or f"no proven task loses more than {PHASE_POINTS:g} points"
    return Line("writing", not worst, text)


def _share(rows: Sequence[Said]) -> float:
    return round(sum(row.right for row in rows) / len(rows), 4) if rows else 0.0


def _kind(text: str) -> str:
    """The name of the action a reply begins with, "" where it begins with none."""
    found = re.match(r"\s*<(\w+)", text)
    return found[1] if found else ""


def _parses(text: str, ids: Sequence[str]) -> bool:
    try:
        actions.parse(text, ids)
    except actions.ActionError:
        return False
    return True
