"""Where the person's notes lie: any folder of Markdown."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from sia import notes
from sia.setup import Answers, Field, NotWorking

FIELDS = (Field("folder", "Folder of your notes, such as an Obsidian vault", default="notes"),)


def test(answers: Answers, home: Path) -> Iterator[str]:
    folder = home / Path(answers["folder"]).expanduser()
    if not folder.exists() and folder.parent.is_dir():
        yield f"notes: {folder} will be made with the first one"
        return
    if not folder.is_dir():
        raise NotWorking(f"{folder} is no folder")
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise NotWorking(f"{folder} cannot be read and written by you")
    yield f"notes: {sum(1 for _ in notes.files(folder)):,} in {folder}"
