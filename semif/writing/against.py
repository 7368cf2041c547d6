"""A larger model behind an OpenAI-compatible server, to measure beside the small one."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from semif.errors import EXIT_FAILED, ModelError
from semif.serving.remote import checked_host, is_token
from semif.writing.grammar import finished
from semif.writing.measure import Output
from semif.writing.tasks import load

_SECONDS = 120.0  # without an answer


class Against:
    """Asks `POST {url}/chat/completions`, where url usually ends in `/v1`, at temperature 0.

    Nothing holds it to a grammar, so what it says is read as it comes; a fence of code around an
    object is taken off. A key is sent over https only, or to this machine. Raises ModelError for
    such a url or key, and when the server cannot be asked.
    """

    def __init__(self, url: str, model: str, key: str | None = None) -> None:
        import httpx2

        try:
            checked_host(url, insecure=key is None)
        except ValueError as error:
            raise ModelError(f"the larger model's {error}") from error
        if key is not None and not is_token(key):
            raise ModelError("the larger model's key is empty or has characters no key has")
        self.name = model
        self._url = url.rstrip("/") + "/chat/completions"
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = httpx2.Client(timeout=_SECONDS, headers=headers)

    def close(self) -> None:
        """Drop the connection."""
        self._client.close()

    def write(self, name: str, given: Mapping[str, str]) -> Output:
        """The text of a task, by the long instruction."""
        prompts = load()
        task = prompts.task(name)
        body = {
            "model": self.name,
            "messages": [
                {"role": "system", "content": prompts.system(name)},
                {"role": "user", "content": task.body(name, given)},
            ],
            "max_tokens": 4 * task.max_tokens,  # another tokenizer may need more
            "temperature": 0.0,
        }
        started = time.perf_counter()
        text, whole = self._ask(body)
        ms = (time.perf_counter() - started) * 1000
        if task.keys:
            text = text.removeprefix("```json").removeprefix("```").removesuffix("```").strip()
        text = " ".join(text.split()) if not task.keys else text
        cut = finished(task, text)
        return Output(cut or text, task.parse(cut or text), whole and cut is None, ms)

    def _ask(self, body: Mapping[str, Any]) -> tuple[str, bool]:
        import httpx2

        try:
            response = self._client.post(self._url, json=body)
            response.raise_for_status()
            choice = json.loads(response.content)["choices"][0]
            content = choice["message"]["content"]
            if content is None:  # it called a tool, or spent its budget on thoughts
                return "", False
            if not isinstance(content, str):
                raise TypeError("its content is no text")
            return content.strip(), choice["finish_reason"] == "stop"
        except httpx2.HTTPError as error:
            raise ModelError(f"{self._url} cannot be asked: {error}", EXIT_FAILED) from error
        except (ValueError, KeyError, IndexError, TypeError) as error:
            what = f"{self._url} sent what is no chat completion: {error!r}"
            raise ModelError(what, EXIT_FAILED) from error
