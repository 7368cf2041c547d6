"""Sorts the loose files of a folder into subfolders by kind; shown first, and it can be undone."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from pathlib import Path
from urllib.parse import quote_from_bytes, unquote_to_bytes

from semif.errors import FileError
from semif.jsonl import write_whole
from sia import places
from sia.skills.api import Ctx, Failed, Finished

_TRIES = 3
_MOST = 500  # files of one run
_UNFINISHED = (".part", ".crdownload", ".partial", ".download", ".tmp")


def plan(ctx: Ctx) -> None:
    folder = _folder(ctx)
    try:
        moves, left = _moves(folder)
    except OSError as error:
        shown = places.shown(str(folder))
        raise Failed(f"{shown} cannot be read: {error.strerror}", "environment") from None
    shown = places.shown(str(folder))
    if not moves:
        ctx.say(f"Nothing to sort: {shown} has no loose files.")
        raise Finished
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Failed(f"{shown} is read-only for you; nothing is moved.", "environment")
    counts = Counter(kind for _, kind in moves)
    lines = [f"I would move {_files(len(moves))} of {shown} into:"]
    for kind, count in sorted(counts.items()):
        examples = [places.shown(name) for name, into in moves if into == kind]
        more = ", …" if count > 3 else ""
        lines.append(f"- {kind}: {_files(count)} ({', '.join(examples[:3])}{more})")
    if left:
        lines.append(
            f"{_files(left)} would stay: of a name that is there already, or over {_MOST} at once."
        )
    ctx.say("\n".join(lines))
    if not ctx.confirm(f"Move {'them' if len(moves) > 1 else 'it'}?"):
        ctx.say("All right, nothing is moved.")
        raise Finished
    # Names may hold any bytes; the state holds JSON.
    ctx.state["folder"] = _kept(os.fspath(folder))
    ctx.state["moves"] = [[_kept(name), kind] for name, kind in moves]


def move(ctx: Ctx) -> None:
    folder = Path(_back(ctx.state["folder"]))
    moves = [(_back(name), kind) for name, kind in ctx.state["moves"]]
    undo = ctx.folders.tasks / f"undo-organize-{ctx.run}.sh"
    ctx.effect("write undo file", lambda key: _write_undo(undo, folder, moves))
    results = [
        ctx.effect(
            "move file",
            lambda key, name=name, kind=kind: _move(folder, name, kind),
            lambda key, name=name, kind=kind: _moved(folder, name, kind),
        )
        for name, kind in moves
    ]
    trouble = [
        f"- {places.shown(name)}: {result}"
        for (name, _), result in zip(moves, results, strict=True)
        if result
    ]
    ctx.state["moved"] = [_kept(name) for (name, _), r in zip(moves, results, strict=True) if not r]
    done = _files(len(moves) - len(trouble))
    lines = [f"Moved {done}. To put them back: sh {shlex.quote(str(undo))}"]
    if trouble:
        lines += [f"{_files(len(trouble))} stayed:", *trouble[:10]]
    ctx.say("\n".join(lines))


def verify(ctx: Ctx) -> bool | None:
    if "moved" not in ctx.state:
        return None
    folder, moved = Path(_back(ctx.state["folder"])), set(ctx.state["moved"])
    return all(
        (folder / kind / _back(name)).exists() and not os.path.lexists(folder / _back(name))
        for name, kind in ctx.state["moves"]
        if name in moved
    )


def _folder(ctx: Ctx) -> Path:
    text, question = ctx.request, "Which folder should I sort: its name or path?"
    for _ in range(_TRIES):
        try:
            place = places.named_folder(text, ctx.folders.files)
            direct = ctx.folders.files / text.strip() if text != ctx.request else None
        except OSError as error:
            raise Failed(f"{ctx.folders.files}: {error.strerror}", "environment") from None
        folder = place.folder if place else direct
        if folder and folder.is_dir():
            return folder.resolve()
        if folder:
            question = f"There is no folder {places.shown(str(folder))}. Which one should I sort?"
        text = ctx.ask(question)
    raise Failed("I do not know which folder to sort.", "text")


def _moves(folder: Path) -> tuple[list[tuple[str, str]], int]:
    """([(name, subfolder)], how many stay): no hidden, unfinished or linked files."""
    moves = []
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            loose = entry.is_file(follow_symlinks=False) and not entry.name.startswith(".")
            if loose and not entry.name.lower().endswith(_UNFINISHED):
                moves.append((entry.name, places.kind_of(entry.name)))
    free = [(name, kind) for name, kind in moves if not os.path.lexists(folder / kind / name)]
    return free[:_MOST], len(moves) - len(free[:_MOST])


def _move(folder: Path, name: str, kind: str) -> str:
    """ "" or why it stayed. A link first, so that nothing that appears meanwhile is overwritten."""
    source, target = folder / name, folder / kind / name
    try:
        target.parent.mkdir(exist_ok=True)
        try:
            os.link(source, target, follow_symlinks=False)
        except FileExistsError:
            return f"{kind} has a file of that name"
        except (OSError, NotImplementedError):  # a file system without links
            _rename(source, target)
        else:
            source.unlink()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _rename(source: Path, target: Path) -> None:
    """Takes the name with an empty file of our own, which the rename then replaces."""
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    try:
        source.rename(target)
    except OSError:
        target.unlink()
        raise


def _moved(folder: Path, name: str, kind: str) -> bool:
    """Whether a move that was cut off has happened; half of one is finished here."""
    source, target = folder / name, folder / kind / name
    if os.path.lexists(source) and target.exists() and source.samefile(target):
        source.unlink()
    return target.exists() and not os.path.lexists(source)


def _write_undo(undo: Path, folder: Path, moves: list[tuple[str, str]]) -> None:
    lines = [b"#!/bin/sh\n# Puts back what was sorted; nothing is overwritten.\n"]
    lines.append(b"cd " + _quoted(os.fspath(folder)) + b" || exit 1\n")
    for name, kind in moves:
        lines.append(b"mv -n ./" + _quoted(f"{kind}/{name}") + b" ./" + _quoted(name) + b"\n")
    kinds = sorted({kind for _, kind in moves})
    lines += [b"rmdir ./" + _quoted(kind) + b" 2>/dev/null\n" for kind in kinds]
    try:
        undo.parent.mkdir(parents=True, exist_ok=True)
        write_whole(undo, b"".join([*lines, b"exit 0\n"]))
    except (OSError, FileError) as error:
        raise Failed(
            f"Nothing is moved, as it could not be undone: {error}", "environment"
        ) from None


def _quoted(name: str) -> bytes:
    return os.fsencode(shlex.quote(name))


def _kept(name: str) -> str:
    return quote_from_bytes(os.fsencode(name))


def _back(name: str) -> str:
    return os.fsdecode(unquote_to_bytes(name))


def _files(count: int) -> str:
    return f"{count} file{'s' * (count != 1)}"
