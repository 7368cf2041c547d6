"""The command line over an agent without models: ``python double.py ARGUMENTS OF sia``.

Its skills are the home's alone; its generator replies with the lines of the home's file
``replies``, each once, over restarts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "sia"))
from rig import SkillHome, brain, policy

from semif.testing import ScriptedDecider
from sia.agent import Agent, Options
from sia.cli.main import entry
from sia.events import Emit
from sia.generator.testing import ScriptedGenerator
from sia.generator.types import TASKS
from sia.home import Home


def replies(path: Path) -> Iterator[str]:
    while path.exists() and (lines := path.read_text().splitlines()):
        path.write_text("\n".join(lines[1:]))
        yield lines[0]


def make(home: Home, options: Options, emit: Emit) -> Agent:
    generator = ScriptedGenerator(replies(home.folder / "replies"), TASKS - {"judge"})
    loaded = brain(generator, ScriptedDecider(policy))
    return Agent(SkillHome(home.folder, home.config), options, emit, lambda *_: loaded)


if __name__ == "__main__":
    entry(make)
