"""A session: the entries of its context, in the order the prompt shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from sia.context import parse_document, parse_entry
from sia.entries import Entry, InputEntry, Script
from sia.prompt import entry_text
from sia.redact import redact
from sia.scripts import Output, ScriptState
from sia.store import Store


class Session:
    """Entries with unique ids; knows which changed since the last save.

    A running script that ends moves behind what came meanwhile: it then stands where the prompt's
    settled part first showed it, and stays there.
    """

    def __init__(self, name: str, parent: str = "", last_id: int = 0) -> None:
        """last_id: ids go on from there, so that the scripts of two sessions never share one."""
        self.name, self.parent = name, parent
        self.n = 0
        self.filed: frozenset[Entry] = frozenset()  # what the last iteration's file holds
        self._last_id = last_id
        self._entries: dict[str, Entry] = {}
        self._position: dict[str, int] = {}
        self._next_position = 0
        self._changed: set[str] = set()
        self._deleted: set[str] = set()

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(self._entries.values())

    @property
    def file(self) -> str:
        """The last iteration's file, relative to the home."""
        return f"contexts/{self.name}/{self.n:06d}.xml"

    def new_id(self) -> str:
        self._last_id += 1
        return f"e{self._last_id}"

    def add(self, make: Callable[[str], Entry]) -> Entry:
        """Append the entry that ``make(id)`` gives."""
        entry = make(self.new_id())
        self._put(entry)
        return entry

    def _put(self, entry: Entry) -> None:
        if entry.id not in self._position:
            self._next_position += 1
            self._position[entry.id] = self._next_position
        self._entries[entry.id] = entry
        self._changed.add(entry.id)
        self._deleted.discard(entry.id)

    def get(self, id: str) -> Entry | None:
        return self._entries.get(id)

    def update(self, entry: Entry) -> None:
        """Replace the entry of the same id."""
        old = self._entries.get(entry.id)
        if old == entry:
            return
        settles = isinstance(old, Script) and old.volatile and not entry_volatile(entry)
        if settles:
            del self._entries[entry.id]
            del self._position[entry.id]
        self._put(entry)

    def delete(self, id: str) -> None:
        if self._entries.pop(id, None) is not None:
            self._position.pop(id)
            self._changed.discard(id)
            self._deleted.add(id)

    def replace_all(self, entries: Iterable[Entry]) -> None:
        """Take over a new list (the budget's): what is missing from it is deleted."""
        wanted = list(entries)
        same = {entry.id for entry in wanted if self._entries.get(entry.id) == entry}
        for id in set(self._entries) - {entry.id for entry in wanted}:
            self.delete(id)
        if len(same) == len(wanted):
            return
        old = self._position
        self._entries = {}
        for entry in wanted:
            # A folded note stands before everything, so it takes the smallest position.
            if entry.id not in old:
                old[entry.id] = min(old.values(), default=1) - 1
            self._entries[entry.id] = entry
            if entry.id not in same:
                self._changed.add(entry.id)

    def request(self, run: str) -> str:
        """The id of the input that started a run, or the run's own when it is not here."""
        for entry in self._entries.values():
            if isinstance(entry, InputEntry) and entry.run == run:
                return entry.id
        return run

    def scripts(self) -> list[Script]:
        """On any thread: the list is taken in one step."""
        return [entry for entry in list(self._entries.values()) if isinstance(entry, Script)]

    def save(self, store: Store) -> None:
        """Write what changed; call inside the turn's transaction."""
        changed = [
            (id, self._position[id], entry_text(self._entries[id])) for id in sorted(self._changed)
        ]
        store.save_entries(changed, sorted(self._deleted))
        store.set_meta("session", self.name)
        store.set_meta("session_parent", self.parent)
        store.set_meta("session_n", str(self.n))
        store.set_meta("session_last_id", str(self._last_id))

    def saved(self, filed: Iterable[Entry] = ()) -> None:
        """The transaction of ``save`` is committed; ``filed`` are the iteration's entries."""
        self.filed = frozenset(filed)
        self._changed.clear()
        self._deleted.clear()


def entry_volatile(entry: Entry) -> bool:
    return isinstance(entry, Script) and entry.volatile


def last_id(store: Store) -> int:
    return int(store.meta("session_last_id", "0"))


def resume(store: Store) -> Session | None:
    """The session the database holds, or None."""
    name = store.meta("session")
    if not name:
        return None
    session = Session(name, store.meta("session_parent"), last_id(store))
    session.n = int(store.meta("session_n", "0"))
    for position, xml in store.entries():
        entry = parse_entry(parse_document(xml.encode()))
        session._entries[entry.id] = entry
        session._position[entry.id] = position
        session._next_position = max(session._next_position, position)
    return session


def lost_scripts(session: Session, known: Callable[[str], bool]) -> None:
    """Mark scripts as lost that were to run and of which nothing is known."""
    for script in session.scripts():
        if script.status == "running" and script.mode != "repeat" and not known(script.id):
            session.update(replace(script, status="lost", note="lost over a restart"))


def seen(script: Script, state: ScriptState) -> Script:
    """The entry of a script as it stands, without secrets."""
    return replace(
        script,
        status=state.status,
        exit_code=state.exit_code,
        stdout=_redacted(state.stdout, f"scripts/{script.id}/stdout"),
        stderr=_redacted(state.stderr, f"scripts/{script.id}/stderr"),
        note=state.note,
    )


def _redacted(output: Output, file: str) -> Output:
    text = redact(output.text)
    if text == output.text:
        return output
    return replace(output, text=text, lossy=True, file=output.file or file)
