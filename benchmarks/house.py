"""A simulated person's home for the dreaming benchmarks: a category of their own, and a log.

The requests are in data/house/requests.tsv: whether they are logged or unseen, the text, and the
skill that is meant. They are in the words of one household, which no model can know: Bertha makes
the coffee, the Drawbridge is the garage, the Slate hangs in the kitchen.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import numpy as np

from semif.jsonl import append
from semif.llama import Model
from semif.log import Label, append_labels, row
from semif.measuring.paired import bootstrap
from semif.models import Source
from semif.revision import Registry, untuned, write
from semif.rows import golden_data, shipped_data
from semif.testing import write_tiny_model
from semif.types import Answer, Decider
from sia.dream import dream, proof
from sia.dream.measured import Examiner
from sia.home import checkout
from sia.navigate import Navigator, Route
from sia.questions import Questions, View
from sia.skills.tree import Tree, load

DATA = Path(__file__).with_name("data") / "house" / "requests.tsv"
CATEGORY = "What this house and its people do, in the words of this house."
SKILLS = {
    "warm": "Warm, cool or rest the rooms and machines of this house.",
    "open": "Open, lock or hand out the ways into this house.",
    "tell": "Leave word for the people of this house.",
}
TINY = {"layers": 2, "epochs": 1, "replay": 0.1}  # of a recipe, for a random model
BEGAN = datetime(2026, 11, 30, 8, tzinfo=UTC)


@dataclass(frozen=True)
class Wanted:
    """A request and the skill that is meant."""

    text: str
    skill: str


@dataclass(frozen=True)
class Setting:
    """What the benchmarks run on. ``limit``: of rows, for a model that only shows that they run."""

    model: Model
    home: Path
    registry: Registry
    threads: int
    limit: int | None = None

    def examiner(self) -> Examiner:
        kind = Examiner if self.limit is None else _Small
        return kind(self.model, self.threads, 4096)


class _Small(Examiner):
    golden_rows = property(lambda self: _golden()[::60])  # type: ignore[assignment]


def _golden() -> list:
    from semif.rows import golden

    return golden()


def requests(kind: str) -> list[Wanted]:
    """Those that are ``logged`` or ``unseen``."""
    lines = (line.split("\t") for line in DATA.read_text("utf-8").splitlines())
    return [Wanted(text, skill) for which, text, skill in lines if which == kind]


def ordinary(tree: Tree) -> list[Wanted]:
    """Requests of the shipped training texts for the skills that are there."""
    assert shipped_data() != golden_data()
    lines = (shipped_data() / "requests.tsv").read_text("utf-8").splitlines()
    pairs = (line.split("\t") for line in lines if line.count("\t") == 1)
    known = {skill.id for skill in tree.skills}
    return [Wanted(text, skill) for text, skill in pairs if skill in known]


def setting(home: Path, tiny: bool, threads: int) -> Setting:
    """The embedded model with the shipped revision, or a random model with none."""
    folder = home / ".sia/revisions"
    folder.mkdir(parents=True, exist_ok=True)
    registry = Registry(folder)
    if not tiny:
        from semif.engine import load as load_model

        return Setting(load_model(None)[0], home, registry, threads)
    if not (path := home / "tiny.gguf").exists():
        write_tiny_model(path)
    model = Model.open(path)
    contents = untuned(Source(model.path, model.sha256, model.type), "branches").contents
    first = write(msgspec.structs.replace(contents, thresholds={"x": 0.5}), {}, folder)
    if not (folder / "current").exists():
        (folder / "current").write_text(f"{first.id}\n")
    dream.HELD_ROWS = proof.HELD_ROWS = 4
    return Setting(model, home, registry, threads, 60)


def tree(home: Path) -> Tree:
    """The shipped skills and, of the home, the category of its own."""
    folder = home / "skills" / "house"
    for name, text in SKILLS.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "SKILL.md").write_text(
            f'---\nname: {name}\ndescription: "{text}"\nmetadata:\n  sia-actions: act\n---\n'
        )
        (folder / name / "skill.py").write_text("def act(ctx):\n    ctx.say('done')\n")
    (folder / "CATEGORY.md").write_text(f'---\nname: house\ndescription: "{CATEGORY}"\n---\n')
    found = load((checkout() / "skills", home / "skills"))
    assert not found.problems, found.problems
    return found.offered(lambda key: None)


def navigator(decider: Decider, new_id: Callable[[], str] = lambda: "x") -> Navigator:
    return Navigator(decider, {}, Questions.load(), new_id, guard=False)


def accuracy(decider: Decider, tree: Tree, wanted: Sequence[Wanted]) -> dict[str, float]:
    """The share of requests that find their skill, with the bounds of 90 %."""
    right = [navigator(decider).route(one.text, tree).skill == one.skill for one in wanted]
    texts = [one.text for one in wanted]
    found = bootstrap(np.array(right, float), np.ones(len(right)), texts)
    return {
        "accuracy": round(found.mean, 4),
        "low": round(found.low, 4),
        "high": round(found.high, 4),
        "n": len(right),
    }


def work(
    home: Path,
    decider: Decider,
    tree: Tree,
    wanted: Sequence[Wanted],
    name: str,
    correct: int,
    wrong: float = 0.0,
    seed: int = 0,
) -> dict[str, int]:
    """Log the decisions of requests with their labels, as the agent does: what was found is
    verified, and of the rest ``correct`` are corrected. ``wrong``: share of labels that are not
    so. Ids begin with ``name``, so that a log written twice is one."""
    chance, counts = random.Random(f"{seed}{name}"), {"right": 0, "corrected": 0, "rows": 0}
    for number, one in enumerate(wanted):
        ids = iter(f"{name}-{number}-{n}" for n in range(100))
        route, answers = _asked(decider, tree, one, ids.__next__)
        if right := route.skill == one.skill:
            counts["right"] += 1
        elif counts["corrected"] < correct:
            counts["corrected"] += 1
        else:
            continue
        now = BEGAN + timedelta(minutes=number)
        labels = []
        for answer in answers:
            decision = answer.decision
            category, _, skill = one.skill.partition("/")
            meant = {"navigate_category": category, "navigate_skill": skill}
            option = meant.get(decision.phase, "yes")
            if chance.random() < wrong:
                others = [o.id for o in decision.options if o.id != option]
                option = chance.choice(others)
            source = "verified" if right else "human"
            labels.append(Label.new(decision.id, "r1", "is", option, source, by="benchmark"))
        append(home / ".sia/decisions.jsonl", [row(answer, "r1", now) for answer in answers])
        append_labels(home / ".sia/labels.jsonl", labels)
        counts["rows"] += len(answers)
    return counts


def _asked(
    decider: Decider, tree: Tree, one: Wanted, new_id: Callable[[], str]
) -> tuple[Route, list[Answer]]:
    """The gate, the category, the skill within the category that is meant, whether it covers."""
    route = navigator(decider, new_id).route(one.text, tree)
    category = one.skill.partition("/")[0]
    questions = Questions.load()
    gate = questions.decision("contains_request", View(one.text), new_id())
    about = f"{one.skill}: {tree.skill(one.skill).description}"
    cover = questions.decision("cover", View(one.text, skill=about), new_id())
    answers = [*decider.decide([gate]), route.answers[0], *decider.decide([cover])]
    inside = [answer for answer in route.answers[1:] if route.skill.startswith(f"{category}/")]
    if not inside:
        inside = list(navigator(decider, new_id).within(one.text, tree, category).answers)
    return route, [*answers, *inside]


def line(value: dict[str, object]) -> str:
    return json.dumps(value, ensure_ascii=False)
