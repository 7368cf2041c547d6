"""SIA under restart.sh takes up changed code and configuration, and only what works."""

import time
from pathlib import Path

from .checkout import Running

MARK = "\nimport sys\nprint(__name__, 'is new', file=sys.stderr)\n"


def add(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


def test_changed_code_restarts_once_and_half_saved_code_never(running: Running) -> None:
    root = running.checkout.folder
    loop = root / "sia/loop.py"
    before = loop.read_text()
    line = before.count("\n") + 2
    add(loop, "\ndef half(\n")
    old = "SIA goes on with its old code, for the new does not work: sia/loop.py:"
    running.until(lambda: running.said(f"{old}{line}: SyntaxError"))
    add(loop, "")  # saved again
    gone = before.replace("class Arrival:", "class Departure:")
    loop.write_text(gone)
    running.until(lambda: running.said("NameError") or running.said("ImportError"))
    assert running.said(f"{old}{line}: SyntaxError") == 1 and running.said("starts again") == 0

    loop.write_text(before)  # many files, as a pull brings them
    for name in ("sia/loop.py", "sia/queue.py", "semif/similar.py"):
        add(root / name, MARK)
        time.sleep(0.2)
    running.until(lambda: running.said("Ready(") == 2)
    time.sleep(1.5)
    assert running.said("SIA starts again with its new code") == running.said("starts again") == 1
    errors = running.errors.read_text()
    assert all(f"{name} is new" in errors for name in ("sia.loop", "sia.queue", "semif.similar"))
    assert "crash" not in errors  # though no turn was taken
    assert running.stop() == 130


def test_a_changed_configuration_is_taken_up_once_it_can_be_read(running: Running) -> None:
    config = running.checkout.folder / "sia.toml"
    whole = config.read_text()
    config.write_text(f"{whole}[loop]\nturns = 'many")
    running.until(lambda: running.said("SIA goes on with the old sia.toml: "))
    config.write_text(f"# a remark\n{whole}")
    time.sleep(0.5)
    assert running.said("starts again") == 0  # it says what it said
    config.write_text(f"{whole}[reload]\nconfig = false\ncode = false\n")
    running.until(lambda: running.said("Ready(") == 2)
    assert running.said("SIA starts again with the new sia.toml") == 1
    config.write_text(whole)
    add(running.checkout.folder / "sia/queue.py", MARK)
    time.sleep(2.5)
    assert running.said("starts again") == 1 and "crash" not in running.errors.read_text()
    assert running.stop() == 130
