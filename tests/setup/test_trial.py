"""SIA under restart.sh with a revision on trial that cannot be loaded."""

import msgspec

from semif.llama import sha256_file
from semif.revision import DECIDE, Adapters, Registry, write
from semif.testing import write_tiny_adapter

from .checkout import Checkout, Running


def test_a_truncated_adapter_is_refused_and_the_parent_put_back(whole: Checkout) -> None:
    home = whole.folder
    registry = Registry(home / ".sia/revisions")
    parent = registry.current()
    adapter = home / "adapter.gguf"
    write_tiny_adapter(adapter)
    contents = msgspec.structs.replace(
        parent.contents, parent=parent.id, adapters=Adapters(deciding=sha256_file(adapter))
    )
    made = write(contents, {DECIDE: adapter}, registry.folder)
    registry.swap(made.id)
    with (registry.folder / made.id / DECIDE).open("rb+") as file:
        file.truncate(adapter.stat().st_size // 2)
    running = Running(whole)
    try:
        running.until(lambda: running.said("Ready("))
        errors = running.errors.read_text()
        assert "is not the adapter that" in errors
        back = f"revision {made.id} is put back to {parent.id}: the program ended with code 78"
        assert back in errors
        assert running.said("a new revision was put back: ") == 1
        assert registry.current().id == parent.id and registry.pending() is None
        assert running.stop() == 130
    finally:
        running.end()
