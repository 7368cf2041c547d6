"""A category written into a home: its name, its file, and what it never writes over."""

import pytest

from semif.errors import FileError
from sia.skills.category import Proposal, save
from sia.skills.tree import load


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Travel", "travel"),
        ("  Cinema & Theatre ", "cinema-theatre"),
        ("Über Öl", "uber-ol"),
        ("旅行", "lu-xing"),
        ("x" * 80, "x" * 64),
    ],
)
def test_the_folder_is_named_by_the_title(tmp_path, title: str, name: str) -> None:
    proposal = Proposal.of(title, 'trips: "flights",\n # hotels\x1b[31m')
    assert proposal.name == name
    folder = save(tmp_path / "skills", proposal)
    tree = load([tmp_path / "skills"])
    (category,) = tree.categories
    assert tree.problems == () and category.skills == ()
    assert (category.name, category.folder) == (name, folder)
    assert category.description == 'trips: "flights", # hotels [31m'
    assert sorted(path.name for path in folder.iterdir()) == ["CATEGORY.md"]


def test_no_category_is_made_of_nothing() -> None:
    for title, words in (("", "x"), ("Travel", " \n"), ("!?", "x"), ("\x1b", "x")):
        assert Proposal.of(title, words) is None
    assert len(Proposal.of("Travel", "word " * 1000).description) <= 1024


def test_nothing_is_written_over(tmp_path) -> None:
    travel = Proposal.of("Travel", "trips")
    path = save(tmp_path, travel) / "CATEGORY.md"
    path.write_text("mine")
    with pytest.raises(FileError, match="CATEGORY.md: is there already"):
        save(tmp_path, travel)
    assert path.read_text() == "mine"
    (tmp_path / "music").write_text("a file")
    with pytest.raises(FileError, match="music: cannot be made"):
        save(tmp_path, Proposal.of("Music", "songs"))
