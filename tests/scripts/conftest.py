"""Scripts in folders of their own, outside /tmp, which the sandbox replaces as a whole."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sia.scripts import Cancel, Policy, ScriptLimits, Scripts, ScriptState
from sia.scripts.policy import sandbox_problem


class Place:
    """A home with its scripts, and a way to run one to its end."""

    def __init__(self, root: Path) -> None:
        self.root, self.over = root, []
        self.work, self.tasks, self.folder = root / "work", root / "tasks", root / ".sia/scripts"
        for folder in (self.work, self.tasks, self.folder):
            folder.mkdir(parents=True)
        self.opened: list[Scripts] = []

    def scripts(self, policy: Policy | None = None, **limits: object) -> Scripts:
        opened = Scripts(
            self.folder,
            limits=ScriptLimits(**limits),
            policy=policy or Policy("allow"),
            work=self.work,
            tasks=self.tasks,
            environment={**os.environ, "HOME": str(self.root), "MAIL_PASSWORD": "hunter2"},
            on_change=self.over.append,
        )
        self.opened.append(opened)
        return opened


@pytest.fixture
def place() -> Iterator[Place]:
    root = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="sia-test-"))
    place = Place(root)
    yield place
    for scripts in place.opened:
        scripts.close(keep_background=False)
    shutil.rmtree(root)


@pytest.fixture
def run(place: Place) -> Callable[..., ScriptState]:
    """Run a command as a single_shot and give its state when its shell has exited.

    ``within``: seconds that this may take; the best of three counts, for machines that are busy.
    """

    def run(
        command: str, policy: Policy | None = None, within: float = 60.0, **limits: object
    ) -> ScriptState:
        scripts = place.scripts(policy, **limits)
        took = []
        while not took or (min(took) > within and len(took) < 3):
            begun = time.monotonic()
            scripts.start("e1", "single_shot", command)
            assert scripts.wait(["e1"], Cancel())
            state = scripts.state("e1")
            took.append(time.monotonic() - begun)
        assert min(took) <= within
        return state

    return run


@pytest.fixture
def sandbox() -> Policy:
    if problem := sandbox_problem():
        pytest.skip(problem)
    return Policy("sandbox")
