"""Picking tokens: by temperature, within a grammar, and never half a character."""

from __future__ import annotations

import codecs
import ctypes
from dataclasses import dataclass

import llama_cpp.llama_cpp as c
import numpy as np
from numpy.typing import NDArray

from semif.errors import ModelError
from semif.llama import Model

_CANDIDATE = [("id", np.intc), ("logit", np.single), ("p", np.single)]  # llama_token_data


@dataclass(frozen=True)
class Marks:
    """forbidden: bool [n_vocab], the tokens that steer the template (turn markers, …) and so must
    never be picked; end: a token that ends a text, -1 where the model has none."""

    forbidden: NDArray[np.bool_]
    end: int


def marks(model: Model) -> Marks:
    """Looks at every token once (about 50 ms), so keep the result."""
    vocab = c.llama_model_get_vocab(model.handle)
    forbidden = np.zeros(model.n_vocab, dtype=bool)
    end = -1
    for token in range(model.n_vocab):
        if model.ends(token):
            end = token
        else:
            forbidden[token] = c.llama_vocab_is_control(vocab, token)
    return Marks(forbidden, end)


class Sampler:
    """Draws one text, token by token; the same logits, grammar and seed give the same text.

    temperature 0 takes the likeliest token. Otherwise Gumbel noise is added to logits /
    temperature once a token and the maximum taken: passing over a token that does not fit and
    taking the next one is then the exact draw among those that do, so the costly look at the
    grammar over the whole vocabulary is needed only when the first pick does not fit.
    """

    def __init__(
        self,
        model: Model,
        marks: Marks,
        grammar: str | None,
        temperature: float,
        seed: int,
    ) -> None:
        self._model = model
        self._marks = marks
        self._temperature = temperature
        self._random = np.random.default_rng(seed)
        # Strict: a token whose bytes would not go on as UTF-8 is passed over, so that no text ever
        # holds U+FFFD that the model did not mean.
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._grammar = None
        if grammar is not None:
            vocab = c.llama_model_get_vocab(model.handle)
            self._grammar = c.llama_sampler_init_grammar(vocab, grammar.encode(), b"root")
            if not self._grammar:
                raise ModelError("llama.cpp refuses the grammar of this reply")

    def close(self) -> None:
        """Free the grammar."""
        if self._grammar:
            c.llama_sampler_free(self._grammar)
            self._grammar = None

    def pick(self, logits: NDArray[np.float32]) -> tuple[int, str] | None:
        """The next token and the characters it completes ("" within one); None: the text ends.

        logits: float32 [n_vocab]. Raises ModelError when no token fits.
        """
        scores = logits.astype(np.float64)
        if self._temperature > 0:
            scores = scores / self._temperature + self._random.gumbel(size=len(scores))
        scores[self._marks.forbidden] = -np.inf
        narrowed = self._grammar is None
        while True:
            token = int(scores.argmax())
            if not scores[token] > -np.inf:  # also when a damaged model gives NaN
                raise ModelError("no token of the model fits the grammar of this reply")
            if self._fits(np.array([token]))[0]:
                if self._model.ends(token):
                    return None
                text = self._decoded(token)
                if text is not None:
                    break
            if not narrowed:
                scores[~self._fits(np.arange(len(scores)))] = -np.inf
                narrowed = True
            scores[token] = -np.inf
        if self._grammar:
            c.llama_sampler_accept(self._grammar, token)
        return token, text

    def may_end(self) -> bool:
        """Whether the text so far is whole by the grammar."""
        return self._marks.end >= 0 and bool(self._fits(np.array([self._marks.end]))[0])

    def _decoded(self, token: int) -> str | None:
        """The characters the token completes, None (and nothing changed) where it breaks UTF-8."""
        before = self._decoder.getstate()
        try:
            return self._decoder.decode(self._model.piece(token))
        except UnicodeDecodeError:
            self._decoder.setstate(before)
            return None

    def _fits(self, tokens: NDArray[np.int_]) -> NDArray[np.bool_]:
        """bool [len(tokens)]: which of the tokens may come next by the grammar."""
        if not self._grammar:
            return np.ones(len(tokens), dtype=bool)
        data = np.zeros(len(tokens), dtype=_CANDIDATE)
        data["id"] = tokens
        candidates = c.llama_token_data_array(
            data=data.ctypes.data_as(ctypes.POINTER(c.llama_token_data)),
            size=len(tokens),
            selected=-1,
            sorted=False,
        )
        c.llama_sampler_apply(self._grammar, ctypes.byref(candidates))
        fits: NDArray[np.bool_] = np.isfinite(data["logit"])
        return fits
