"""restart.sh sets up once, takes up what was interrupted, and leaves a ready `.venv` alone."""

import shutil
from pathlib import Path

import pytest

from .checkout import Checkout


@pytest.fixture
def pip(checkout: Checkout) -> Path:
    """A stand-in for pip in `.venv`, and no stamp; gives the file of what it was called with."""
    calls = checkout.folder / "pip.calls"
    (checkout.packages / "pip").mkdir()
    (checkout.packages / "pip/__init__.py").touch()
    (checkout.packages / "pip/__main__.py").write_text(
        "import os, sys\n"
        f"open({str(calls)!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\n"
        "sys.stdin.read()\n"
        "print('progress')\n"
        "sys.exit(sys.argv[-1] == os.environ.get('REFUSED'))\n"
    )
    (checkout.folder / ".venv/sia-stamp").unlink()
    checkout.program("print('started', sys.stdin.readline().strip())")
    return calls


BASE, DREAM = "install --editable .\n", "install --editable .[dream]\n"


def test_the_first_start_installs_and_the_second_does_not(checkout: Checkout, pip: Path) -> None:
    first, second = checkout.run(stdin="mine\n"), checkout.run(stdin="mine\n")
    assert (first.stdout, second.stdout) == ("started mine\n", "started mine\n")
    assert first.stderr.count("progress") == 2
    assert first.stderr.count("about ten minutes") == 1
    assert second.stderr == ""
    assert pip.read_text() == BASE + DREAM


def test_new_requirements_are_installed(checkout: Checkout, pip: Path) -> None:
    checkout.run()
    with (checkout.folder / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    assert checkout.run().stdout == "started \n"
    assert pip.read_text() == (BASE + DREAM) * 2


def test_without_the_base_it_does_not_start_and_goes_on_later(
    checkout: Checkout, pip: Path
) -> None:
    failed = checkout.run(REFUSED=".")
    assert (failed.returncode, failed.stdout) == (69, "")
    assert "build-essential" in failed.stderr.splitlines()[-1]
    assert checkout.run().stdout == "started \n"
    assert pip.read_text() == BASE + BASE + DREAM


def test_without_dream_the_base_starts(checkout: Checkout, pip: Path) -> None:
    first = checkout.run(REFUSED=".[dream]")
    assert (first.returncode, first.stdout) == (0, "started \n")
    assert first.stderr.splitlines()[-1].startswith("sia: dreaming is not available")
    assert checkout.run().stderr == ""
    assert pip.read_text() == BASE + DREAM
    again = checkout.run("--setup-only")
    assert (again.returncode, again.stdout) == (0, "")
    assert pip.read_text() == (BASE + DREAM) * 2
    assert checkout.run("--setup-only").stderr == ""


def test_no_python_names_the_package(checkout: Checkout, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in "cksum", "flock", "readlink", "rm", "sh":
        (tools / name).symlink_to(shutil.which(name) or "/nonexistent")
    python = checkout.folder / ".venv/bin/python"  # gone with an upgrade of the system
    python.unlink()
    python.symlink_to(tmp_path / "python")
    checkout.stamp()
    done = checkout.run(PATH=str(tools))
    assert done.returncode == 69
    assert done.stderr == (
        "sia: needs Python 3.11 or newer with its venv module; "
        "on Debian: apt-get install python3 python3-venv (Debian 12 or newer)\n"
    )
    python = tools / "python3"
    python.write_text("#!/bin/sh\ncase $2 in *ensurepip*) exit 1 ;; esac\n")
    python.chmod(0o755)
    done = checkout.run(PATH=str(tools))
    assert done.returncode == 69
    assert done.stderr == (
        "sia: needs Python 3.11 or newer with its venv module; "
        "python3 cannot make environments; on Debian: apt-get install python3-venv\n"
    )
