"""Putting a proven adapter for writing into a new revision, beside the one for decisions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from semif.errors import FileError, ModelError
from semif.llama import check_gguf, sha256_file
from semif.revision import DECIDE, WRITE, Adapters, Revision, write
from semif.writing.measure import proven, short_of
from semif.writing.pairs import data_sha256, golden, read
from semif.writing.tasks import VERSION, Prompts
from semif.writing.tasks import load as load_prompts
from semif.writing.turns import TASK

METRICS = "writing"
ACT = TASK  # what an adapter that learned turns is worth at them; without it, it learned none


def prompts(revision: Revision) -> Prompts:
    """Those that the revision's adapter was measured with; ModelError when they are unknown."""
    return load_prompts(revision.contents.metrics.get(METRICS, {}).get("prompts", VERSION))


def read_figures(path: Path) -> dict[str, Any]:
    """What `semif write eval` printed; FileError when it is something else."""
    try:
        figures = json.loads(path.read_bytes())
        if figures["prompts"] and figures["adapter_sha256"] and figures["tasks"]:
            return dict(figures)
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError):
        pass
    raise FileError(path, "is no measurement of an adapter; make it with semif write eval")


def pin(
    parent: Revision,
    adapter: Path,
    figures: Mapping[str, Any],
    out: Path,
    act: Mapping[str, Any] | None = None,
) -> Path:
    """The folder of a new revision in `out`: all of `parent`, with this adapter for writing.

    Of the writing tasks, those whose figures reach their bars are its proven ones. `act`: figures
    of an adapter that learned turns, with which the generator then answers them; `act` is proven
    where they reach its bar. Without them turns are answered by the base alone; that it is proven
    for them stays unless it was proven with an adapter. ModelError when the figures are of another
    adapter or base, or of anything but the whole golden set; FileError when it cannot be
    written.
    """
    check_gguf(adapter, "adapter")
    found = sha256_file(adapter)
    if figures["adapter_sha256"] != found:
        raise ModelError(f"the figures are of another adapter than {adapter}; measure it again")
    if figures.get("base_sha256") != parent.contents.base.sha256:
        raise ModelError(f"revision {parent.id} stands on another base than the one measured")
    rows = read(golden())
    if figures.get("golden_sha256") != data_sha256(rows) or figures.get("rows") != len(rows):
        raise ModelError(
            f"the figures are not of the whole golden set ({len(rows)} rows); measure the adapter "
            "with semif write eval, without --limit and --golden"
        )
    tasks = load_prompts(figures["prompts"]).tasks
    old = parent.contents
    still = set(old.proven) - set(tasks)
    if act is not None or ACT in old.metrics:
        still.discard(ACT)
    if act is not None and not short_of(ACT, act):
        still.add(ACT)
    metrics = {name: value for name, value in old.metrics.items() if name != ACT}
    contents = msgspec.structs.replace(
        old,
        parent=parent.id,
        adapters=Adapters(old.adapters.deciding, found),
        proven=tuple(sorted(still | set(proven(figures["tasks"])))),
        metrics={**metrics, METRICS: dict(figures), **({ACT: dict(act)} if act else {})},
    )
    return out / write(contents, {DECIDE: parent.decide_path, WRITE: adapter}, out).id
