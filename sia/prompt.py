"""``prompt(iteration)``: the one text that inference, replay and training share.

What seldom changes stands first and what always changes last: the instructions, then the settled
entries in order, then repeats and running scripts, figures, process and queue. A turn that adds an
entry leaves every token before it as it was, so a generator's cache of them stays good.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from lxml import etree

from sia.context import entry_element, figures_element, put_now
from sia.entries import Entry, Iteration, Script
from sia.generator.types import Part

VERSION = "system-v1"


@dataclass(frozen=True)
class Prompt:
    """parts: (role, text) in order. trained: per part, whether training takes a loss on it."""

    parts: tuple[Part, ...]
    trained: tuple[bool, ...]
    sha256: str  # of the parts a model reads, without the response

    @property
    def system_sha256(self) -> str:
        return sha256(self.parts[0].text)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@lru_cache(maxsize=4)
def system_text(version: str = VERSION) -> str:
    return (resources.files("sia") / "prompts" / f"{version}.txt").read_text("utf-8")


@lru_cache(maxsize=8192)
def entry_text(entry: Entry) -> str:
    """One entry as the prompt shows it."""
    return etree.tostring(entry_element(entry), encoding="unicode")


def volatile(entry: Entry) -> bool:
    return isinstance(entry, Script) and entry.volatile


def settled_text(iteration: Iteration) -> str:
    """The entries that no longer change, one a line."""
    return "\n".join(entry_text(entry) for entry in iteration.entries if not volatile(entry))


def now_text(iteration: Iteration) -> str:
    """What changes every turn: running scripts, figures, process, queue."""
    lines = [entry_text(entry) for entry in iteration.entries if volatile(entry)]
    now = figures_element(iteration.figures, "now")
    put_now(now, iteration)
    return "\n".join([*lines, etree.tostring(now, encoding="unicode")])


def prompt(iteration: Iteration) -> Prompt:
    """The prompt of an iteration, and its response with the loss mask when it has one.

    The loss is taken on a response that the generator or a person wrote, never on what code or a
    skill did.
    """
    system = Part("system", system_text(iteration.prompt_version or VERSION))
    user = Part("user", f"{settled_text(iteration)}\n{now_text(iteration)}\n")
    digest = sha256("\0".join(f"{part.role}\0{part.text}" for part in (system, user)))
    response = iteration.response
    if response is None:
        return Prompt((system, user), (False, False), digest)
    trained = response.by in ("generator", "person") and not response.lossy
    assistant = Part("assistant", response.text)
    return Prompt((system, user, assistant), (False, False, trained), digest)
