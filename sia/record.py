"""The record of a turn, on disk before its effects are followed by the next.

Order: decision rows, labels, one commit of the database, the iteration file; each synced. The
commit also holds the iteration's bytes, so that a crash before the file is written loses nothing:
at the next start it is written from there.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

from semif.jsonl import sync_folder, write_whole
from sia.context import ContextError, parse_iteration
from sia.entries import Iteration, Script, Text
from sia.redact import redact
from sia.scripts.shown import Output
from sia.store import Store


def path_of(contexts: Path, session: str, n: int) -> Path:
    return contexts / session / f"{n:06d}.xml"


def named(contexts: Path, name: str) -> Path | None:
    """The file of the iteration ``SESSION/N``; None when there is none of that name."""
    session, _, number = name.rpartition("/")
    if session and session == Path(session).name and number.isascii() and number.isdigit():
        path = path_of(contexts, session, int(number))
        return path if path.is_file() else None
    return None


def kept(entry: Script, folder: Path, state: Path) -> Script:
    """Exact bytes of a lossy output, once the script is over, into ``folder`` (an iteration's
    ``<n>.d``), linked or copied from the script's own files; the entry then points there."""
    if entry.status == "running":
        return entry
    stdout = _kept_output(entry.stdout, f"{entry.id}.stdout", folder, state)
    stderr = _kept_output(entry.stderr, f"{entry.id}.stderr", folder, state)
    if (stdout, stderr) == (entry.stdout, entry.stderr):
        return entry
    return replace(entry, stdout=stdout, stderr=stderr)


def _kept_output(output: Output, name: str, folder: Path, state: Path) -> Output:
    if not output.file.startswith("scripts/"):
        return output
    source, target = state / output.file, folder / name
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if source.exists():
        target.unlink(missing_ok=True)  # from a turn that was never recorded
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)
        target.chmod(0o600)
    return replace(output, file=f"{folder.name}/{name}")


def keep_text(text: str, name: str, folder: Path) -> Text:
    """``text`` as an entry shows it, without secrets; where that loses something its exact bytes
    go into a file."""
    shown = Text.of(redact(text))
    if shown.text == text:
        return shown
    exact = text.encode("utf-8", "surrogatepass")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(folder / name, exact)
    return Text(shown.text, True, len(exact), f"{folder.name}/{name}")


def write_iteration(contexts: Path, session: str, n: int, xml: bytes) -> Path:
    path = path_of(contexts, session, n)
    if not path.parent.is_dir():
        path.parent.mkdir(mode=0o700, parents=True)
        sync_folder(contexts)
    write_whole(path, xml)
    return path


def reconcile(store: Store, contexts: Path) -> list[str]:
    """Write the iteration whose file a crash left out or torn; what was mended, in words."""
    mended = []
    for session, n, xml in store.unfiled():
        path = path_of(contexts, session, n)
        try:
            whole = path.read_bytes() == xml
        except FileNotFoundError:
            whole = False
        if not whole and not _edited(path):
            write_iteration(contexts, session, n, xml)
            mended.append(f"{path.name} of session {session} was written again from state.db")
    return mended


def _edited(path: Path) -> bool:
    """Whether a person changed the response of a whole file since it was written."""
    try:
        response = read(path).response
    except (OSError, ContextError):
        return False
    return response is not None and response.edited


def read(path: Path) -> Iteration:
    """The iteration of a file; a torn or foreign one raises ContextError naming the file."""
    try:
        return parse_iteration(path.read_bytes())
    except ContextError as error:
        raise ContextError(f"{path}: {error}") from None
