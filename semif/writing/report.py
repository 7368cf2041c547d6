"""One measurement as a JSON object: an adapter, the base without it, and a larger model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semif.jsonl import write_whole
from semif.llama import Model, sha256_file
from semif.training.progress import Progress, Say
from semif.writing.against import Against
from semif.writing.measure import Output, bars, dumps, measure, proven, short_of
from semif.writing.pairs import Pair, data_sha256, spread
from semif.writing.tasks import load
from semif.writing.writer import Writer


@dataclass(frozen=True)
class Settings:
    """What is measured. `adapter` None: only the base, on all rows; else that on `base_rows` of
    them, since it writes long and to no end. `written`: where the texts are kept."""

    adapter: Path | None
    base_rows: int = 60
    against: str | None = None
    against_model: str = ""
    against_key: str | None = None
    threads: int = 2
    written: Path | None = None
    advance: Callable[[int], None] = lambda texts: None  # hears how many are written


def report(
    model: Model, base_sha256: str, rows: Sequence[Pair], settings: Settings, say: Say
) -> dict[str, Any]:
    """The figures; `base_sha256` is that of the source the model was converted from."""
    found: dict[str, Any] = {
        "prompts": load().version,
        "base_sha256": base_sha256,
        "model": model.path.name,
        "adapter_sha256": sha256_file(settings.adapter) if settings.adapter else None,
        "golden_sha256": data_sha256(rows),
        "rows": len(rows),
        "bars": bars(),
    }
    if settings.adapter:
        tuned, all_rows = _by_writer(model, settings.adapter, rows, settings, say)
        found["tasks"] = tuned
        found["proven"] = list(proven(tuned))
        found["short_of"] = {name: short_of(name, figures) for name, figures in tuned.items()}
        if settings.written:
            write_whole(settings.written, dumps(all_rows))
    if settings.base_rows or not settings.adapter:
        some = spread(rows, settings.base_rows) if settings.adapter else rows
        found["base"], all_rows = _by_writer(model, None, some, settings, say)
        if settings.written and not settings.adapter:
            write_whole(settings.written, dumps(all_rows))
    if settings.against:
        other = Against(settings.against, settings.against_model, settings.against_key)
        try:
            with Progress("larger model", "texts", len(rows), say) as progress:
                figures, _ = measure(rows, other.write, progress.reach)
        finally:
            other.close()
        found["against"] = {"model": settings.against_model, "tasks": figures}
    return found


def _by_writer(
    model: Model, adapter: Path | None, rows: Sequence[Pair], settings: Settings, say: Say
) -> tuple[dict[str, Any], list[Any]]:
    loaded = model.adapter(adapter) if adapter else None
    with Writer(model, loaded, threads=settings.threads) as writer:

        def write(name: str, given: Mapping[str, str]) -> Output:
            written = writer.write(name, given)
            return Output(written.text, written.value, written.whole, written.ms)

        what = adapter.name if adapter else "base"
        with Progress(what, "texts", len(rows), say) as progress:

            def reach(done: int) -> None:
                progress.reach(done)
                settings.advance(done)

            return measure(rows, write, reach)
