"""A new category: the folder of a home's ``skills/`` with its ``CATEGORY.md``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from semif.errors import FileError
from semif.jsonl import sync_folder, write_whole
from sia.skills.manifest import MAX_DESCRIPTION, MAX_NAME


@dataclass(frozen=True)
class Proposal:
    """What a category is to be. name: its folder."""

    name: str
    title: str
    description: str

    @classmethod
    def of(cls, title: str, description: str, name: str = "") -> Proposal | None:
        """None where no name or description can be made of the words."""
        from slugify import slugify

        slug = slugify(name or title, max_length=MAX_NAME, word_boundary=True)
        words, heading = _line(description)[:MAX_DESCRIPTION].strip(), _line(title)
        return cls(slug, heading, words) if slug and words and heading else None

    def __str__(self) -> str:
        return f"{self.title}: {self.description}"


def _line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def save(root: Path, proposal: Proposal) -> Path:
    """Write ``<root>/<name>/CATEGORY.md``; its folder. Raises FileError, also where there is one:
    what a person wrote is not written over."""
    import yaml

    folder = root / proposal.name
    path = folder / "CATEGORY.md"
    head = {"name": proposal.name, "description": proposal.description}
    text = yaml.safe_dump(head, sort_keys=False, allow_unicode=True, width=1000)
    try:
        if path.exists():
            raise FileError(path, "is there already")
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(root)
    except OSError as error:
        raise FileError(folder, f"cannot be made: {error.strerror}") from error
    write_whole(path, f"---\n{text}---\n# {proposal.title}\n".encode())
    return folder
