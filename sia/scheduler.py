"""Admission: is it a request, does it interrupt, how urgent is it, all read together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from semif.types import Answer, Decider
from sia.entries import ProcessView
from sia.questions import Questions, View
from sia.sources import Source

YES = frozenset("yes y yep yeah sure ok okay please ja jo si sí oui sim 是 好".split())
NO = frozenset("no n nope nah don't dont nein non não 不 否".split())
TAU = 0.5


@dataclass(frozen=True)
class Preemption:
    """What it takes to displace a process. source: where its request came from. permitted: the only
    sources it yields to, empty for all. tau: the least P(interrupt), besides the phase's own.
    brakes: (id, description) of the skills that always may, however little the input may else.
    declines: what a person asks for meanwhile, and does not displace it, is declined."""

    source: str = "typed"
    permitted: tuple[str, ...] = ()
    tau: float = 0.0
    brakes: tuple[tuple[str, str], ...] = ()
    declines: bool = False

    def heeds(self, source: Source) -> bool:
        """Whether what comes from ``source`` may displace it at all."""
        permitted = not self.permitted or source.name in self.permitted
        return permitted and self.source in source.interrupts

    def yields(self, source: Source, p: float, skill: str = "") -> bool:
        """Whether it is displaced by what interrupts with probability ``p``, for ``skill``."""
        if any(skill == brake for brake, _ in self.brakes):
            return True
        return self.heeds(source) and p >= self.tau


@dataclass(frozen=True)
class Situation:
    """What an input meets. ``preemption``: what displaces the process. ``question``: of a process
    that waits for an answer, with its ``options``, or ``literal``: whatever is typed next answers
    it; ``asking`` is its run. ``reads``: the current process takes unread input (it is worked by
    the generator)."""

    process: ProcessView | None = None
    preemption: Preemption = Preemption()
    asking: str = ""
    question: str = ""
    options: tuple[str, ...] = ()
    literal: bool = False
    reads: bool = False


@dataclass(frozen=True)
class Admission:
    """action: ignore | queue | decline | preempt | run | answer | stdin | hold | announce.
    interrupt: P(interrupt), 0 where it was not asked. skill: of a preempt that only a brake may
    do."""

    action: str
    urgency: float = 0.0
    answers: tuple[Answer, ...] = ()
    text: str = ""  # the answer to the question, when it is one of its options
    run: str = ""  # the run that is answered, or that reads the input
    interrupt: float = 0.0
    skill: str = ""


def match_option(text: str, options: Sequence[str]) -> str | None:
    """The option that ``text`` names by its own word, by yes or no, or by its number."""
    word = text.strip().strip(".!").casefold()
    for option in options:
        if word == option.casefold():
            return option
    for option in options:
        if (option == "yes" and word in YES) or (option == "no" and word in NO):
            return option
    if word.isascii() and word.isdigit() and 1 <= int(word) <= len(options):
        return options[int(word) - 1]
    starting = [option for option in options if word and option.casefold().startswith(word)]
    return starting[0] if len(starting) == 1 else None


class Scheduler:
    """Decides what to do with an input; changes nothing."""

    def __init__(
        self,
        decider: Decider,
        thresholds: Mapping[str, float],
        questions: Questions,
        new_id: Callable[[], str],
    ) -> None:
        self._decider = decider
        self._thresholds = thresholds
        self._questions = questions
        self._new_id = new_id

    def _tau(self, phase: str) -> float:
        return self._thresholds.get(phase, TAU)

    def admit(self, text: str, source: Source, situation: Situation) -> Admission:
        if not source.gated:
            return Admission("queue", source.urgency)
        if not source.answers:  # it is no reply, whatever words it uses
            situation = replace(situation, asking="", question="", options=(), reads=False)
        if situation.question and situation.options:
            option = match_option(text, situation.options)
            if option is not None:
                return Admission("answer", text=option, run=situation.asking)
        literal = situation.literal and source.name == "typed"
        if literal and situation.process is None:  # there is nothing that it could interrupt
            return Admission("answer", text=text.strip(), run=situation.asking)
        answers = self._decide(text, source, situation)
        by_phase = {answer.decision.phase: answer for answer in answers}
        preemption = situation.preemption
        request = by_phase["contains_request"].probs["yes"] >= self._tau("contains_request")
        urgency = self._urgency(by_phase["urgency"])
        # "stop!" need not read like a request to be one: the interruption is decided by itself.
        interrupt = by_phase["interrupt"].probs["interrupt"] if "interrupt" in by_phase else 0.0
        preempts, skill = False, ""
        if "interrupt" in by_phase and interrupt >= self._tau("interrupt"):
            # Also where it would yield anyway: "stop!" while driving means the brake, and to end
            # the process alone would leave the car going.
            skill, braked = self._brake(text, preemption)
            answers += braked
            preempts = bool(skill) or preemption.yields(source, interrupt)
        if situation.question and not situation.options and not preempts:
            said = by_phase.get("answers")
            answered = said is not None and said.probs["yes"] >= self._tau("answers")
            # What asks for nothing while a question is open is taken as said in answer to it.
            if literal or not request or answered:
                return Admission("answer", 0.0, answers, text.strip(), situation.asking)
        if preempts:
            return Admission("preempt", urgency, answers, interrupt=interrupt, skill=skill)
        if not request:
            if situation.reads:
                return Admission("stdin", urgency, answers, run=situation.process.run)
            # What is held may answer what the process is yet to ask.
            waits = source.held and situation.process is not None
            return Admission("hold" if waits else "ignore", urgency, answers)
        if situation.process is None:
            return Admission("queue" if situation.question else "run", urgency, answers)
        if preemption.declines and source.told:
            return Admission("decline", urgency, answers, interrupt=interrupt)
        return Admission("hold" if source.held else "queue", urgency, answers)

    def _brake(self, text: str, preemption: Preemption) -> tuple[str, tuple[Answer, ...]]:
        """The skill that always may interrupt the process and is meant, "" if none is."""
        if not preemption.brakes:
            return "", ()
        names = {id.rpartition("/")[2]: id for id, _ in preemption.brakes}
        options = list(zip(names, (text for _, text in preemption.brakes), strict=True))
        decision = self._questions.decision("navigate_skill", View(text), self._new_id(), options)
        answers = tuple(self._decider.decide([decision]))
        return names.get(answers[0].selected, ""), answers

    def _decide(self, text: str, source: Source, situation: Situation) -> tuple[Answer, ...]:
        view = View(text, situation.process, situation.question)
        phases = ["contains_request", "urgency"]
        # Asked only where the revision was taught it, which its threshold says.
        if situation.question and not situation.options and "answers" in self._thresholds:
            phases.insert(0, "answers")
        preemption = situation.preemption
        # Nor is asked what could change nothing.
        if situation.process is not None and (preemption.brakes or preemption.heeds(source)):
            phases.insert(-1, "interrupt")
        decisions = [self._questions.decision(phase, view, self._new_id()) for phase in phases]
        return tuple(self._decider.decide(decisions))

    def _urgency(self, answer: Answer) -> float:
        weights = self._questions.urgency
        return sum(p * weights[option] for option, p in answer.probs.items())
