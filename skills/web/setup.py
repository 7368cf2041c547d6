"""What web search needs: a SearXNG server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sia import searxng
from sia.setup import Answers, Field, NotWorking
from sia.web import WebError

FIELDS = (Field("search_url", "Address of a SearXNG server", default="http://127.0.0.1:8888"),)


def test(answers: Answers, home: Path) -> Iterator[str]:
    try:
        found = searxng.search(answers["search_url"], "test")
    except WebError as error:
        raise NotWorking(str(error)) from None
    yield f"web search: {len(found)} results for a test"
