"""The writing tasks: what each is given, how that is shown to the model, and what a text must be.

Texts of prompts, fields and bars are data files beside this module. A value stands on one line of
its own (its line breaks become what the field says), and the whole is tokenised with special
tokens off, so that nothing typed can forge a field or a turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec

from semif.errors import DecisionError, ModelError

if TYPE_CHECKING:
    from semif.llama import Model

VERSION = "writing-v1"
CAUSES = ("environment", "text", "choice", "unknown")
ID = re.compile(r"[a-z]+(?:-[a-z]+){0,2}")
# Characters of a field or text: far more than the context holds, few enough for any pattern.
MOST = 10_000
# Whatever a reader could take for the end of a line.
_BREAKS = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\\s*")
# Control characters, those of the Unicode category Cf except the joiners that scripts need, tags,
# selectors of variants, surrogates.
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff\U000110bd\U000110cd"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# Words whose full stop ends no sentence; neither does one after a digit or a single letter, or
# before a small letter.
_SHORT = frozenset(
    "mr mrs ms dr dra prof profa st sr sra srta sres no nr mme mlle av vs etc ca approx min max "
    "tel art str z.b e.g i.e p.m a.m d.h u.a bzw inkl ggf jr inc co ltd ex pp fig vol cap pág núm "
    "ref".split()
)
_END = re.compile(
    r"(?<![.!?…])([.!?…]++[\"'”’»)]*+)\s++(?=\S)|(?<![。！？])([。！？]++[」』”]*+)\s*+(?=\S)"
)

Value = str | dict[str, Any]


class Field(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One input of a task: what stands before it, and between its lines."""

    name: str
    before: str
    between: str = " "


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A task: a text of one line, or an object where there are `keys`.

    `title` is the instruction the model was tuned with, `long` what an untuned one is told.
    `keep`: fields whose numbers, links, dates and quotations must stand in the text; `changes`: the
    field that these change. `sentences`: at most.
    """

    title: str
    long: str
    fields: tuple[Field, ...]
    keep: tuple[str, ...]
    max_tokens: int
    keys: tuple[str, ...] = ()
    sentences: int | None = None
    changes: str = ""

    def body(self, name: str, given: Mapping[str, str]) -> str:
        """The fields, one a line; DecisionError names one that is missing or unknown."""
        known = {field.name for field in self.fields}
        for key in given:
            if key not in known:
                raise DecisionError(name, f"input.{key}", f"is unknown; known: {sorted(known)}")
        lines = []
        for field in self.fields:
            value = given.get(field.name)
            if isinstance(value, str) and len(value) > MOST:
                what = f"has {len(value)} characters of at most {MOST}"
                raise DecisionError(name, f"input.{field.name}", what)
            if not isinstance(value, str) or not (text := shown(value, field.between)):
                raise DecisionError(name, f"input.{field.name}", "must be a text that is not empty")
            lines.append(field.before + text)
        return "\n".join(lines)

    def text(self, value: Value) -> str:
        """The one line of a value: itself, or the object with its keys in order."""
        if isinstance(value, str):
            return value
        return json.dumps({key: value[key] for key in self.keys}, ensure_ascii=False)

    def parse(self, text: str) -> Value | None:
        """The value of a line, None where it is not well formed."""
        text = text.strip()
        if not text or len(text) > MOST or _HIDDEN.search(text):
            return None
        if not self.keys:
            too_many = self.sentences is not None and len(ends(text)) >= self.sentences
            return None if too_many else text
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(value, dict) or set(value) != set(self.keys):
            return None
        return value if _checked(value) else None


class Prompts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All tasks of a version, and the frame of turns around a prompt."""

    version: str
    begin: str
    end: str
    rules: str
    tasks: dict[str, Task]

    def task(self, name: str) -> Task:
        """DecisionError for a task this program does not know."""
        if name not in self.tasks:
            raise DecisionError(name, "task", f"is unknown; known: {', '.join(self.tasks)}")
        return self.tasks[name]

    def tokens(
        self, model: Model, name: str, given: Mapping[str, str], tuned: bool = True
    ) -> list[int]:
        """The prompt up to where the text begins; for a model not `tuned`, in full words."""
        task = self.task(name)
        said = task.title if tuned else self.system(name)
        body = f"{said}\n{task.body(name, given)}"
        whole = [model.bos] if model.adds_bos else []
        whole += model.tokenize(self.begin, special=True)
        whole += model.tokenize(body, special=False)
        return whole + model.tokenize(self.end, special=True)

    def system(self, name: str) -> str:
        """What a model that was not tuned for the task is told."""
        return f"{self.task(name).long} {self.rules}"


@cache
def load(version: str = VERSION) -> Prompts:
    """The tasks a revision pins; ModelError 78 for a version this program lacks."""
    file = files("semif").joinpath("writing", f"{version}.json")
    if not re.fullmatch(r"writing-v\d+", version) or not file.is_file():
        raise ModelError(f"the writing prompts {version!r} are unknown; this program has {VERSION}")
    return msgspec.json.decode(file.read_bytes(), type=Prompts)


def shown(value: str, between: str = " ") -> str:
    """A value as the model sees it: one line, without what cannot be seen."""
    lines = [_HIDDEN.sub("", line).strip() for line in _BREAKS.split(value)]
    return between.join(line for line in lines if line)


def ends(text: str) -> list[int]:
    """Where sentences end that another one follows: offsets just after their last character."""
    found = []
    for match in _END.finditer(text):
        if match[2]:
            found.append(match.end(2))
            continue
        before = text[max(0, match.start() - 24) : match.start()]
        word = "" if not before or before[-1].isspace() else before.split()[-1]
        word = word.strip("(\"'“„«").casefold()
        short = word in _SHORT or word[-1:].isdigit() or (len(word) == 1 and word != "i")
        if not ((match[1] == "." and short) or text[match.end()].islower()):
            found.append(match.end(1))
    return found


def _checked(value: Mapping[str, Any]) -> bool:
    """Whether the values of an object are of the kinds that its keys ask for."""
    for key, item in value.items():
        if key == "success":
            fits = isinstance(item, bool)
        elif key == "cause":
            fits = item in (("none",) if value.get("success") else CAUSES)
        elif key == "id":
            fits = isinstance(item, str) and ID.fullmatch(item) is not None
        else:
            # As it is read: an escape may hide what the line does not show.
            fits = isinstance(item, str) and bool(item.strip()) and not _HIDDEN.search(item)
        if not fits:
            return False
    return True
