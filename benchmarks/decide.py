"""What a decision costs: naive, with state prefixes, ours, as generated JSON, and the floor.

    .venv/bin/python -m benchmarks.decide [--quick] [--model GGUF] [--revision FOLDER]

Prints one JSON object. All arms run on one model file with one number of threads and one
micro-batch, in turn over the same inputs:

a  each decision alone on an empty cache, by the published letters prompt
b  the same prompts, the part up to the end of the state evaluated once for each state; the
   questions one after the other (serial) or in one decode (shared)
c  the engine with the revision's prompts
d  the letters prompt asked for a JSON object, generated greedily
e  the floor of c: one causal decode of as many tokens as each decode of c evaluated
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median

import numpy as np
from msgspec import structs

from benchmarks.machine import machine, summary
from semif import revision, rows
from semif.encoding import common
from semif.engine import Engine, load
from semif.letters import Letters
from semif.llama import Model, Session
from semif.prompting import letters_prompt
from semif.types import Decision, Option

N_CTX = 4096
JSON_TOKENS = 16
GENERATED = 8  # decisions a workload; generating is too slow for all

# The criterion first, with a long and a short branch, with a few words or the whole of the
# description in the branch; then the state first.
ORDERS = (
    "branches-v1",
    "branches-v2",
    "branches-words-v2",
    "branches-described-v2",
    "branches-state-v2",
)

Case = Sequence[Decision]


def triples(count: int) -> list[Case]:
    """contains_request, interrupt and urgency of inputs of the golden set."""
    found: dict[str, dict[str, Decision]] = {}
    for row in rows.golden():
        phase, _, where = row.decision.id.partition(":")
        if where.startswith("inputs"):
            found.setdefault(where, {})[phase] = row.decision
    interrupt = next(d["interrupt"] for d in found.values() if "interrupt" in d)
    urgency = next(d["urgency"] for d in found.values() if "urgency" in d)
    cases = []
    for of_input in list(found.values())[:count]:
        state = of_input["contains_request"].state
        asked = [of_input["contains_request"]]
        for model in (interrupt, urgency):
            asked.append(Decision(model.phase, model.phase, state, model.question, model.options))
        cases.append(asked)
    return cases


def crossed(states: int) -> list[Case]:
    """Every criterion of `data/criteria.json` on each of some states, given together."""
    criteria = json.loads((Path(__file__).parent / "data" / "criteria.json").read_bytes())
    options = (Option("no", "No, it does not hold."), Option("yes", "Yes, it holds."))
    texts = [case[0].state for case in triples(states)]
    return [
        [
            Decision(f"{i}:{name}", "", state, question, options)
            for i, state in enumerate(texts)
            for name, question in criteria.items()
        ]
    ]


def navigation(count: int) -> list[Case]:
    """The category of a request among twelve."""
    tree = json.loads((rows.golden_data() / "trees.json").read_bytes())
    shown = [Option(name, of["description"]) for name, of in list(tree.items())[:12]]
    options = (*shown, Option("create_category", "None of these fits; suggest a new category."))
    found = [row.decision for row in rows.golden() if row.decision.phase == "navigate_category"]
    return [[Decision(d.id, d.phase, d.state, d.question, options)] for d in found[:count]]


class LettersArm:
    """Arms a, b and d, on a session of their own."""

    def __init__(self, model: Model, pinned: revision.Revision, threads: int) -> None:
        self._model = model
        adapter = model.adapter(pinned.decide_path) if pinned.decide_path else None
        self._letters = Letters(model, letters_prompt("direct-options-v1"), adapter, threads, N_CTX)
        self.session = self._letters.session

    def _prompts(self, case: Case) -> list[list[int]]:
        return [self._letters.prompt(decision)[1] for decision in case]

    def naive(self, case: Case) -> int:
        prompts = self._prompts(case)
        for tokens in prompts:
            self._alone(tokens)
        return sum(map(len, prompts))

    def _alone(self, tokens: Sequence[int]) -> np.ndarray:
        self.session.clear()
        last = len(tokens) - 1
        self.session.decode(tokens, range(len(tokens)), [(0,)] * len(tokens), [last])
        return self.session.logits(last)

    def serial(self, case: Case) -> int:
        return sum(self._serial(prompts) for prompts in self._by_state(case))

    def _serial(self, prompts: list[list[int]]) -> int:
        shared = self._prefix(prompts, [0])
        for tokens in prompts:
            self.session.keep(0, shared)
            own = tokens[shared:]
            positions = range(shared, len(tokens))
            self.session.decode(own, positions, [(0,)] * len(own), [len(own) - 1])
        return shared + sum(len(tokens) - shared for tokens in prompts)

    def shared(self, case: Case) -> int:
        return sum(self._shared(prompts) for prompts in self._by_state(case))

    def _shared(self, prompts: list[list[int]]) -> int:
        seqs = range(len(prompts))
        shared = self._prefix(prompts, list(seqs))
        own = [token for tokens in prompts for token in tokens[shared:]]
        positions = [p for tokens in prompts for p in range(shared, len(tokens))]
        of = [(seq,) for seq, tokens in zip(seqs, prompts, strict=True) for _ in tokens[shared:]]
        ends = np.cumsum([len(tokens) - shared for tokens in prompts]) - 1
        self.session.decode(own, positions, of, ends.tolist())
        return shared + len(own)

    def _prefix(self, prompts: list[list[int]], seqs: list[int]) -> int:
        """Evaluate what the prompts of one state have in common; its length."""
        self.session.clear()
        first = tuple(prompts[0])
        least = min(map(len, prompts)) - 1
        shared = min(least, *(common(first, tuple(tokens)) for tokens in prompts))
        self.session.decode(first[:shared], range(shared), [seqs] * shared)
        return shared

    def _by_state(self, case: Case) -> Iterator[list[list[int]]]:
        by_state: dict[str, list[list[int]]] = {}
        for decision, tokens in zip(case, self._prompts(case), strict=True):
            by_state.setdefault(json.dumps(decision.state), []).append(tokens)
        yield from by_state.values()

    def generated(self, case: Case) -> int:
        """Prompt and up to 16 tokens of a JSON object, which ends it, for each decision."""
        opening = self._model.tokenize('{"letter": "', special=False)
        evaluated = 0
        for tokens in self._prompts(case):
            row = self._alone([*tokens, *opening])
            place, text = len(tokens) + len(opening), ""
            while "}" not in text and place < len(tokens) + JSON_TOKENS:
                token = int(row.argmax())
                text += self._model.piece(token).decode("utf-8", "replace")
                self.session.decode([token], [place], [(0,)], [0])
                row, place = self.session.logits(0), place + 1
            evaluated += place
        return evaluated


class OurArm:
    """Arm c, and what its decodes were."""

    def __init__(self, model: Model, pinned: revision.Revision, threads: int) -> None:
        self.engine = Engine(model, pinned, threads, N_CTX)
        self.decodes: list[tuple[int, float]] = []  # tokens, seconds inside llama.cpp

    def decide(self, case: Case) -> int:
        return sum(answer.tokens for answer in self.engine.decide(case))

    @contextmanager
    def watched(self) -> Iterator[None]:
        session = self.engine._readout.session
        whole = session._decode_batch

        def timed(tokens: Sequence[int], *rest: object) -> None:
            begun = time.perf_counter()
            whole(tokens, *rest)  # type: ignore[arg-type]
            self.decodes.append((len(tokens), time.perf_counter() - begun))

        session._decode_batch = timed  # type: ignore[method-assign]
        try:
            yield
        finally:
            session._decode_batch = whole  # type: ignore[method-assign]


def floor(session: Session, decodes: Sequence[tuple[int, float]]) -> float:
    """Seconds of causal decodes of as many tokens, each on an empty cache with one row wanted."""
    total = 0.0
    for count, _ in decodes:
        tokens = [100 + i % 1000 for i in range(count)]
        session.clear()
        begun = time.perf_counter()
        session.decode(tokens, range(count), [(0,)] * count, [count - 1])
        total += time.perf_counter() - begun
    return total


def timed(call: Callable[[Case], int], case: Case) -> tuple[float, int]:
    begun = time.perf_counter()
    tokens = call(case)
    return time.perf_counter() - begun, tokens


def workload(
    cases: Sequence[Case], letters: LettersArm, ours: OurArm, repeats: int
) -> dict[str, object]:
    """All arms, case by case in turn."""
    arms: dict[str, Callable[[Case], int]] = {
        "a_naive": letters.naive,
        "b_state_prefix_serial": letters.serial,
        "b_state_prefix_shared": letters.shared,
        "c_ours": ours.decide,
    }
    seconds: dict[str, list[float]] = {name: [] for name in [*arms, "e_floor"]}
    tokens: dict[str, list[int]] = {name: [] for name in arms}
    overhead = []
    ours.decide(cases[0])  # the criteria are there, as they are in a running agent
    for case in [case for case in cases for _ in range(repeats)]:
        for name, arm in arms.items():
            ours.decodes.clear()
            with ours.watched():
                took, count = timed(arm, case)
            seconds[name].append(took)
            tokens[name].append(count)
        overhead.append(1 - sum(inside for _, inside in ours.decodes) / seconds["c_ours"][-1])
        seconds["e_floor"].append(floor(letters.session, ours.decodes))
    generated = [timed(letters.generated, case[:GENERATED]) for case in cases[:GENERATED]]
    mid = {name: median(values) for name, values in seconds.items()}
    of_one = [
        took / len(case[:GENERATED]) for (took, _), case in zip(generated, cases, strict=False)
    ]
    return {
        "decisions_a_case": len(cases[0]),
        "cases": len(cases),
        "ms_a_case": {
            name: summary([1000 * value for value in values], 1) for name, values in seconds.items()
        },
        "tokens_a_case": {name: round(median(values)) for name, values in tokens.items()},
        "ms_a_decision": {
            **{name: round(1000 * value / len(cases[0]), 2) for name, value in mid.items()},
            "d_generated_json": round(1000 * median(of_one), 1),
        },
        "ratio": {
            "a_over_c": round(mid["a_naive"] / mid["c_ours"], 2),
            "b_serial_over_c": round(mid["b_state_prefix_serial"] / mid["c_ours"], 2),
            "b_shared_over_c": round(mid["b_state_prefix_shared"] / mid["c_ours"], 2),
            "d_over_c": round(median(of_one) * len(cases[0]) / mid["c_ours"], 2),
            "c_over_e": round(mid["c_ours"] / mid["e_floor"], 3),
        },
        "python_share_of_c": round(median(overhead), 4),
    }


def orders(
    model: Model, pinned: revision.Revision, threads: int, cases: Sequence[Case]
) -> dict[str, object]:
    """The triple in every order that a prompt version lays a decision out in.

    The revision answers well only in the order it was trained in; what is measured is the time.
    """
    found: dict[str, object] = {}
    for version in ORDERS:
        contents = structs.replace(pinned.contents, prompt_version=version, prompt_versions={})
        one = revision.Revision(pinned.id, contents, pinned.folder)
        with Engine(model, one, threads, N_CTX) as engine:
            engine.decide(cases[0])
            took, tokens = [], []
            for case in cases:
                begun = time.perf_counter()
                tokens.append(sum(answer.tokens for answer in engine.decide(case)))
                took.append(1000 * (time.perf_counter() - begun))
        found[version] = {"ms": summary(took, 1), "tokens": round(median(tokens))}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="What a decision costs; see the module's text.")
    parser.add_argument("--quick", action="store_true", help="few inputs")
    parser.add_argument("--model", help="a GGUF file in place of the embedded model")
    parser.add_argument("--revision", type=Path, help="a revision folder in place of the shipped")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    model, pinned = load(args.model, args.revision)
    letters, ours = (arm(model, pinned, args.threads) for arm in (LettersArm, OurArm))
    with closing(letters.session), closing(ours.engine):
        report = {
            "benchmark": "decide",
            "machine": machine(),
            "model": {"path": model.path.name, "type": model.type, "threads": args.threads},
            "revision": pinned.id,
            "n_batch": letters.session.n_batch,
            "triple": workload(triples(10 if args.quick else 100), letters, ours, 1),
            "states_x_criteria": workload(
                crossed(4 if args.quick else 37), letters, ours, 1 if args.quick else 3
            ),
            "navigation": workload(navigation(10 if args.quick else 100), letters, ours, 1),
            "orders": orders(model, pinned, args.threads, triples(10 if args.quick else 40)),
        }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
