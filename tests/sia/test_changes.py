"""What SIA runs on, watched: what is taken up, what is not, and that a turn is finished first."""

import threading
from pathlib import Path

import pytest

from sia import changes
from sia.changes import Code, ConfigFile
from sia.errors import INTERRUPTED, RESTART
from sia.events import Notice, Ready, TurnEnded

FREE = "free: tell me something"


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of nothing but a package named like ours, of two modules."""
    root = tmp_path / "semif"
    (root / "__pycache__").mkdir(parents=True)
    (root / "__init__.py").write_text("")
    (root / "one.py").write_text("A = 1\n")
    return root


@pytest.fixture
def code(package: Path, told: list[str]) -> Code:
    return Code([package], threading.Event(), told.append, lambda: ["semif.one"])


def test_what_can_be_imported_is_taken_up(code: Code, package: Path, told: list[str]) -> None:
    assert code.look() == ""
    (package / "one.py").write_text("A = 2\n")
    (package / "two.py").write_text("from semif.one import A\n")
    assert code.look() == "with its new code" and not told


def test_what_cannot_is_told_once(code: Code, package: Path, told: list[str]) -> None:
    code.look()
    (package / "two.py").write_text("from semif.one import B\n")
    assert code.look() == code.look() == ""
    (line,) = told
    assert line.startswith(
        "SIA goes on with its old code, for the new does not work: "
        "semif/two.py:1: ImportError: cannot import name 'B' from 'semif.one'"
    )
    (package / "two.py").unlink()  # as it was
    assert code.look() == "" and len(told) == 1
    (package / "one.py").unlink()
    code.look()
    assert told[1].endswith("ModuleNotFoundError: No module named 'semif.one'")


def test_the_main_module_is_read_and_not_run(code: Code, package: Path, told: list[str]) -> None:
    code.look()
    (package / "__main__.py").write_text("raise SystemExit(3)\n")
    assert code.look() == "with its new code"
    (package / "__main__.py").write_text("def\n")
    assert code.look() == "" and "semif/__main__.py:1: SyntaxError" in told[0]


def test_a_package_that_is_not_installed(code: Code, package: Path, told: list[str]) -> None:
    """Of an extra it may be missing; of what runs it may not."""
    code.look()
    (package / "two.py").write_text("import no_such_package\n")
    assert code.look() == "with its new code"
    (package / "one.py").write_text("import no_such_package\n")
    assert code.look() == "" and "semif/one.py:1: ModuleNotFoundError" in told[0]


def test_what_is_no_code_is_left(code: Code, package: Path) -> None:
    code.look()
    (package / "__pycache__/one.cpython-311.pyc").write_text("x")
    (package / ".one.py.swp").write_text("x")
    (package / "one.py").write_text("A = 1\n")  # saved without a change
    assert code.look() == ""


def test_what_was_saved_before_the_first_look(code: Code, package: Path) -> None:
    (package / "one.py").write_text("A = 22\n")
    assert code.look() == "with its new code"


def test_only_a_checkout_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [path.name for path in changes.code_roots()] == ["sia", "semif"]
    (tmp_path / "sia").mkdir()
    monkeypatch.setattr("sia.home.checkout", lambda: tmp_path)
    assert changes.code_roots() == ()  # as where wheels are unpacked
    (tmp_path / "pyproject.toml").touch()
    assert changes.code_roots() == (tmp_path / "sia",)


def test_a_configuration(tmp_path: Path, told: list[str]) -> None:
    path = tmp_path / "sia.toml"
    watched = ConfigFile(path, told.append)
    assert watched.look() == ""
    path.write_text("[loop]\nturn = 3\n")
    assert watched.look() == watched.look() == ""
    (line,) = told
    assert "unknown key loop.turn; did you mean turns?" in line
    path.write_text("[loop]\nturns = 12\n")  # as it is by default
    assert watched.look() == ""
    path.write_text("[loop]\nturns = 13\n")
    assert watched.look() == "with the new sia.toml" and len(told) == 1


def test_what_cannot_be_watched_is_told(tmp_path: Path, told: list[str]) -> None:
    gone = ConfigFile(tmp_path / "gone/sia.toml", told.append)
    changes.watch(gone, threading.Event(), told.append, told.append).join(10)
    (line,) = told
    assert line.startswith("sia.toml is not watched (")


@pytest.mark.parametrize(("ended", "code"), [(False, RESTART), (True, INTERRUPTED)])
def test_the_turn_is_finished_first(make, home, ended: bool, code: int) -> None:
    """And who ends the agent meanwhile ends it."""
    may, begun = threading.Event(), threading.Event()

    def reply(parts, cancel):
        begun.set()
        while not (may.wait(0.02) or cancel.is_set()):
            pass
        return "<write_stdout>done</write_stdout>" if may.is_set() else None

    rig = make([reply]).start()
    rig.wait(Ready)
    rig.say(FREE)
    assert begun.wait(20)
    (home / "sia.toml").write_text((home / "sia.toml").read_text() + "[loop]\nturns = 5\n")
    rig.wait(Notice, text="SIA starts again with the new sia.toml")
    if ended:
        assert rig.stop(INTERRUPTED) == code
        return
    may.set()
    assert rig.joined() == code and rig.agent.changed
    assert rig.said == ["done"] and rig.wait(TurnEnded)
