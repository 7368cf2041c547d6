"""Writing tasks for generators that are not tuned for them: the prompt, and the check of a text."""

from __future__ import annotations

from collections.abc import Mapping

from semif.errors import DecisionError
from semif.writing.facts import fault
from semif.writing.tasks import Task, Value, load
from sia.generator.types import Part, Reply, Unfit


def task(name: str) -> Task:
    """Raises Unfit for a task that is none."""
    try:
        return load().task(name)
    except DecisionError as error:
        raise Unfit(str(error)) from error


def parts(name: str, fields: Mapping[str, str]) -> list[Part]:
    """The prompt in full words. Raises Unfit when the fields are not the task's."""
    try:
        return [Part("system", load().system(name)), Part("user", task(name).body(name, fields))]
    except DecisionError as error:
        raise Unfit(str(error)) from error


def read(name: str, reply: Reply) -> Value | None:
    """What a reply says, None when it was cancelled. Raises Unfit when it is malformed."""
    if reply.finish == "cancelled":
        return None
    value = task(name).parse(_bare(reply.text)) if reply.finish == "stop" else None
    if value is None:
        raise Unfit(f"the text for {name} is not well formed")
    return value


def checked(name: str, fields: Mapping[str, str], value: Value | None, whole: bool = True) -> Value:
    """The value, which may be shown. Raises Unfit when it loses or invents facts, or was cut."""
    if value is None or (why := fault(name, fields, value, whole)):
        raise Unfit(f"the text for {name} {why if value is not None else 'is not well formed'}")
    return value


def _bare(text: str) -> str:
    """A text on one line, without the fence that models like to put around JSON."""
    text = text.strip()
    if text.startswith("```"):
        text = text.removeprefix("```json").removeprefix("```").removesuffix("```")
    return " ".join(text.split())
