"""A thin typed layer over llama.cpp's C interface: model, adapter, session.

Nothing here knows about decisions or chat. Every return code is checked, native memory is freed by
`close()` or by a finalizer, and llama.cpp's log never reaches the terminal: its last error lines
become part of the error that is raised. Limits that llama.cpp enforces by aborting the process
(batch size, sequence ids, outputs) are checked here first.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from semif.errors import Aborted, ModelError

if TYPE_CHECKING:
    import numpy as np

MAX_SEQUENCES = 256  # LLAMA_MAX_SEQ, compiled into llama.cpp
_LOG_ERROR = 4  # GGML_LOG_LEVEL_ERROR


@dataclass(frozen=True)
class Library:
    """The C library with its log kept; one per process because llama.cpp's log hook is."""

    c: ModuleType
    build: str
    errors: deque[tuple[int, str]]
    log_callback: object  # kept alive for as long as C may call it

    def last_error(self) -> str:
        """What llama.cpp logged as errors on this thread since the last question, in one line."""
        me = threading.get_ident()
        lines = [text for thread, text in self.errors if thread == me]
        self.errors.clear()
        return "; ".join(lines[-3:]) or "llama.cpp gave no reason"


@cache
def library() -> Library:
    from importlib.metadata import version

    # llama.cpp's threads spin while they wait for each other; with two sessions on few cores, or
    # other work on the machine, spinning costs ten times what sleeping does. Read at first load.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import llama_cpp.llama_cpp as c

    errors: deque[tuple[int, str]] = deque(maxlen=20)

    def keep(level: int, text: bytes | None, _data: object) -> None:
        if level == _LOG_ERROR and text:
            errors.append((threading.get_ident(), text.decode("utf-8", "replace").strip()))

    callback = c.llama_log_callback(keep)
    c.llama_log_set(callback, None)
    c.llama_backend_init()
    return Library(c, f"llama-cpp-python {version('llama-cpp-python')}", errors, callback)


def build() -> str:
    """Name and version of the llama.cpp build in use."""
    return library().build


def sha256_file(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_gguf(path: Path, what: str) -> None:
    """Refuse, in one line, what is missing, unreadable or plainly no GGUF file."""
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        reason = error.strerror or error
        raise ModelError.missing(f"{what} {path} cannot be read: {reason}") from error
    if magic != b"GGUF":
        raise ModelError(f"{what} {path} is not a GGUF file; download or convert it again")


def _text(call: Callable[[ctypes.Array[ctypes.c_char], int], int]) -> str | None:
    """Read a C string whose length is known only after asking; None where the key is unknown."""
    size = 256
    while True:
        buffer = ctypes.create_string_buffer(size)
        needed = call(buffer, size)
        if needed < 0:
            return None
        if needed < size:
            return buffer.value.decode("utf-8", "replace")
        size = needed + 1


def _release(free: Callable[[Any], None], handle: Any, _owner: object) -> None:
    """Free a handle; `_owner` is only held on to, so that a model outlives its sessions."""
    free(handle)


class Adapter:
    """A LoRA adapter loaded for one model; it lives as long as the model does."""

    def __init__(self, model: Model, path: Path, handle: Any) -> None:
        self.model = model
        self.path = path
        self.handle = handle


class Model:
    """Weights and vocabulary, loaded once and shared by any number of sessions and threads."""

    def __init__(self, path: Path, handle: int) -> None:
        lib = library()
        self.path = path
        self.handle = handle
        self._c = lib.c
        self._vocab = lib.c.llama_model_get_vocab(handle)
        self._lock = threading.Lock()
        self._adapters: dict[tuple[Path, int, int], Any] = {}  # handles, which the model owns
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        self._free = weakref.finalize(self, _release, lib.c.llama_model_free, handle, None)
        # At interpreter exit a thread may still be inside a decode; the system frees the memory.
        self._free.atexit = False

    @classmethod
    def open(cls, path: Path, gpu_layers: int = 0) -> Model:
        """Map a GGUF model into memory; ModelError 69 when missing, 78 when damaged."""
        check_gguf(path, "model")
        lib = library()
        params = lib.c.llama_model_default_params()
        params.load_mode = lib.c.LLAMA_LOAD_MODE_MMAP
        params.n_gpu_layers = gpu_layers
        lib.errors.clear()
        handle = lib.c.llama_model_load_from_file(str(path).encode(), params)
        if not handle:
            raise ModelError(
                f"model {path} is damaged or of a kind this build cannot run "
                f"({lib.last_error()}); download or convert it again"
            )
        return cls(path, handle)

    def close(self) -> None:
        """Close all sessions on the model, then free the weights."""
        for session in list(self._sessions):
            session.close()
        self._free()

    @cached_property
    def sha256(self) -> str:
        return sha256_file(self.path)

    @property
    def n_vocab(self) -> int:
        return int(self._c.llama_vocab_n_tokens(self._vocab))

    @property
    def type(self) -> str:
        """Type of the bulk of the weights: f32, f16, bf16, q4_1, q4_k - medium, ..."""
        guessed = self._c.LLAMA_FTYPE_GUESSED
        name = self._c.llama_ftype_name(self._c.llama_model_ftype(self.handle) & ~guessed)
        return str((name or b"unknown").decode().lower().removeprefix("all "))

    @property
    def n_params(self) -> int:
        return int(self._c.llama_model_n_params(self.handle))

    @property
    def n_ctx_train(self) -> int:
        return int(self._c.llama_model_n_ctx_train(self.handle))

    @property
    def bos(self) -> int:
        return int(self._c.llama_vocab_bos(self._vocab))

    @property
    def eos(self) -> int:
        return int(self._c.llama_vocab_eos(self._vocab))

    @property
    def adds_bos(self) -> bool:
        """Whether the model was trained with a beginning-of-text token before every text."""
        return bool(self._c.llama_vocab_get_add_bos(self._vocab))

    @property
    def recurrent(self) -> bool:
        """Whether some layers keep a running state, which cannot be cut back to an earlier one."""
        c = self._c
        return bool(c.llama_model_is_recurrent(self.handle) or c.llama_model_is_hybrid(self.handle))

    @property
    def hybrid(self) -> bool:
        """Whether some layers keep a running state and others attend."""
        return bool(self._c.llama_model_is_hybrid(self.handle))

    @property
    def chat_template(self) -> str | None:
        return self.meta("tokenizer.chat_template")

    def ends(self, token: int) -> bool:
        """Whether the token ends a generation (end of text, end of turn, ...)."""
        return bool(self._c.llama_vocab_is_eog(self._vocab, token))

    def meta(self, key: str) -> str | None:
        """A metadata value of the GGUF as text, None when the key is absent."""
        name = key.encode()
        return _text(
            lambda buffer, size: self._c.llama_model_meta_val_str(self.handle, name, buffer, size)
        )

    def tokenize(self, text: str, special: bool) -> list[int]:
        """Token ids without BOS; `special` decides whether `<|im_end|>` is one token or text."""
        raw = text.encode("utf-8", "surrogatepass")
        size = len(raw) + 8
        for _ in range(2):
            tokens = (ctypes.c_int32 * size)()
            count = self._c.llama_tokenize(self._vocab, raw, len(raw), tokens, size, False, special)
            if count >= 0:
                return list(tokens[:count])
            size = -count
        raise ModelError(f"model {self.path} cannot tokenise a text of {len(raw)} bytes")

    def piece(self, token: int, special: bool = True) -> bytes:
        """The bytes a token stands for; may be a part of a character. Control tokens by name."""
        size = 64
        for _ in range(2):
            buffer = ctypes.create_string_buffer(size)
            count = self._c.llama_token_to_piece(self._vocab, token, buffer, size, 0, special)
            if count >= 0:
                return buffer.raw[:count]
            size = -count
        raise ModelError(f"model {self.path} has no text for token {token}")

    def detokenize(self, tokens: Iterable[int], special: bool = True) -> str:
        """Text of the tokens; bytes that are no whole character become U+FFFD."""
        return b"".join(self.piece(token, special) for token in tokens).decode("utf-8", "replace")

    def adapter(self, path: Path) -> Adapter:
        """A LoRA adapter; ModelError when it is damaged or was made for another base.

        It is loaded once: only closing the model frees it. A file that was changed is another.
        """
        check_gguf(path, "adapter")
        stat = path.stat()
        key = path.resolve(), stat.st_mtime_ns, stat.st_size
        with self._lock:  # llama.cpp keeps a list of adapters in the model, unguarded
            if key in self._adapters:
                return Adapter(self, path, self._adapters[key])
            lib = library()
            lib.errors.clear()
            handle = self._c.llama_adapter_lora_init(self.handle, str(path).encode())
            if handle:
                self._adapters[key] = handle
        if not handle:
            raise ModelError(
                f"adapter {path} does not fit the model {self.path} ({lib.last_error()}); "
                "it was made for another base, or is damaged"
            )
        return Adapter(self, path, handle)


class Session:
    """One llama context: its own memory (KV cache), threads and adapter. Not thread-safe.

    `n_ctx` cells of memory are taken on construction and shared by `n_seq` sequences. At most
    `n_seq` rows of logits can be wanted of each `n_batch` tokens.
    `abort`, when set, is asked during a decode, about once per tensor operation and on the
    decoding thread: it must be quick. When it answers True, decode raises `Aborted`.
    """

    def __init__(
        self,
        model: Model,
        n_ctx: int,
        n_seq: int = 1,
        threads: int = 2,
        n_batch: int = 512,
        adapter: Adapter | None = None,
        kv_unified: bool = True,
        flash: bool = False,
    ) -> None:
        if not 1 <= n_seq <= MAX_SEQUENCES:
            raise ValueError(f"n_seq must be 1 to {MAX_SEQUENCES}, not {n_seq}")
        lib = library()
        c = self._c = lib.c
        params = c.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_batch = params.n_ubatch = min(n_batch, n_ctx)
        params.n_seq_max = params.n_outputs_max = n_seq
        params.n_threads = params.n_threads_batch = threads
        params.kv_unified = kv_unified
        params.flash_attn_type = (
            c.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash else c.LLAMA_FLASH_ATTN_TYPE_DISABLED
        )
        lib.errors.clear()
        handle = c.llama_init_from_model(model.handle, params)
        if not handle:
            raise ModelError(f"no context of {n_ctx} tokens for {model.path}: {lib.last_error()}")
        self.model = model
        self.adapter = adapter
        self.n_seq = n_seq
        self.threads = threads
        self.n_ctx = int(c.llama_n_ctx(handle))
        self.n_batch = int(c.llama_n_batch(handle))
        self.abort: Callable[[], bool] | None = None
        self.handle = handle
        self._memory = c.llama_get_memory(handle)
        self._rows: dict[int, np.ndarray] = {}
        self._free = weakref.finalize(self, _release, c.llama_free, handle, model)
        self._free.atexit = False  # as for the model
        model._sessions.add(self)
        this = weakref.ref(self)  # the callback must not keep the session alive

        def asked(_data: object) -> bool:
            session = this()
            return session is not None and session.abort is not None and session.abort()

        self._abort_callback = c.ggml_abort_callback(asked)
        if adapter is not None:
            self._apply(adapter)

    def _apply(self, adapter: Adapter) -> None:
        if adapter.model is not self.model:
            self.close()
            raise ModelError(f"adapter {adapter.path} was loaded for {adapter.model.path}")
        handles = (self._c.llama_adapter_lora_p_ctypes * 1)(adapter.handle)
        if self._c.llama_set_adapters_lora(self.handle, handles, 1, (ctypes.c_float * 1)(1.0)):
            self.close()
            raise ModelError(f"adapter {adapter.path} cannot be used: {library().last_error()}")

    def close(self) -> None:
        """Free the context; the session cannot be used afterwards."""
        self._rows.clear()
        self._free()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def decode(
        self,
        tokens: Sequence[int],
        positions: Sequence[int],
        seqs: Sequence[Sequence[int]],
        want_logits: Iterable[int] = (),
    ) -> None:
        """Evaluate tokens; token i stands at positions[i] in every sequence of seqs[i].

        `want_logits` are indexes into `tokens`, whose rows `logits` gives until the next decode.
        More than `n_batch` tokens go in several batches. On any error the sequences are cut back
        to what they held before, which asks that tokens are only ever appended; of a model whose
        memory cannot be cut they are forgotten.
        Raises `Aborted`, or `ModelError` when the memory is full or llama.cpp fails.
        """
        if not self._free.alive:
            raise ValueError("the session is closed")
        wanted = set(want_logits)
        self._check(tokens, positions, seqs, wanted)
        self._rows.clear()
        hook = self._abort_callback if self.abort is not None else self._c.ggml_abort_callback()
        self._c.llama_set_abort_callback(self.handle, hook, None)
        done = False
        try:
            for start in range(0, len(tokens), self.n_batch):
                if self.abort is not None and self.abort():
                    raise Aborted
                stop = min(start + self.n_batch, len(tokens))
                part = slice(start, stop)
                local = sorted(i - start for i in wanted if start <= i < stop)
                self._decode_batch(tokens[part], positions[part], seqs[part], local)
                for i in local:
                    self._rows[start + i] = self._row(i)
            done = True
        finally:
            if not done:
                self._forget(positions, seqs)

    def _check(
        self,
        tokens: Sequence[int],
        positions: Sequence[int],
        seqs: Sequence[Sequence[int]],
        wanted: set[int],
    ) -> None:
        count = len(tokens)
        if not count or len(positions) != count or len(seqs) != count:
            raise ValueError("tokens, positions and seqs must have one length, at least 1")
        if any(not 0 <= i < count for i in wanted):
            raise ValueError(f"want_logits must lie in 0..{count - 1}")
        per_batch: dict[int, int] = {}
        for i in wanted:
            per_batch[i // self.n_batch] = per_batch.get(i // self.n_batch, 0) + 1
        if max(per_batch.values(), default=0) > self.n_seq:
            raise ValueError(f"at most {self.n_seq} rows of logits per {self.n_batch} tokens")
        if not all(seq and all(0 <= s < self.n_seq for s in seq) for seq in seqs):
            raise ValueError(f"every token needs sequences in 0..{self.n_seq - 1}")

    def _decode_batch(
        self,
        tokens: Sequence[int],
        positions: Sequence[int],
        seqs: Sequence[Sequence[int]],
        wanted: Sequence[int],
    ) -> None:
        count = len(tokens)
        # Tokens of one prefix share one array of ids; Python keeps all arrays alive for the call.
        ids = {seq: (ctypes.c_int32 * len(seq))(*seq) for seq in {tuple(s) for s in seqs}}
        rows = (ctypes.POINTER(ctypes.c_int32) * count)(
            *(ctypes.cast(ids[tuple(s)], ctypes.POINTER(ctypes.c_int32)) for s in seqs)
        )
        flags = (ctypes.c_int8 * count)()
        for i in wanted:
            flags[i] = 1
        batch = self._c.llama_batch(
            n_tokens=count,
            token=(ctypes.c_int32 * count)(*tokens),
            embd=None,
            pos=(ctypes.c_int32 * count)(*positions),
            n_seq_id=(ctypes.c_int32 * count)(*(len(s) for s in seqs)),
            seq_id=rows,
            logits=flags,
        )
        lib = library()
        lib.errors.clear()
        code = self._c.llama_decode(self.handle, batch)
        if code == 2:
            raise Aborted
        if code == 1:
            raise ModelError(f"the context of {self.n_ctx} tokens is full; raise n_ctx", 1)
        if code:
            raise ModelError(f"decoding failed ({code}): {lib.last_error()}", 1)

    def _row(self, index: int) -> np.ndarray:
        import numpy as np

        row = self._c.llama_get_logits_ith(self.handle, index)
        if not row:
            raise ModelError(f"llama.cpp gave no logits: {library().last_error()}", 1)
        return np.ctypeslib.as_array(row, shape=(self.model.n_vocab,)).copy()

    def _forget(self, positions: Sequence[int], seqs: Sequence[Sequence[int]]) -> None:
        first: dict[int, int] = {}
        for position, seq in zip(positions, seqs, strict=True):
            for s in seq:
                first[s] = min(position, first.get(s, position))
        for seq_id, position in first.items():
            # What cannot be cut is forgotten whole, so that nothing half evaluated stays.
            self.keep(seq_id, position if self.can_cut else 0)

    def logits(self, i: int) -> np.ndarray:
        """Row i of the last decode: float32 [n_vocab], a copy of its own."""
        return self._rows[i]

    @property
    def can_cut(self) -> bool:
        """Whether a part of a sequence can be forgotten or shared; else only the whole."""
        return not self.model.recurrent

    def length(self, seq: int) -> int:
        """Number of positions the sequence holds."""
        return int(self._c.llama_memory_seq_pos_max(self._memory, seq)) + 1

    def keep(self, seq: int, n: int) -> None:
        """Cut the sequence back to its first n positions."""
        if not self._c.llama_memory_seq_rm(self._memory, seq, n, -1):
            raise ModelError(f"{self.model.path} cannot cut a sequence back (recurrent memory)", 1)

    def copy(self, src: int, dst: int, p0: int = 0, p1: int = -1) -> None:
        """Let `dst` share positions p0..p1 of `src` (-1: to the end); costs no computation."""
        self._c.llama_memory_seq_cp(self._memory, src, dst, p0, p1)

    def clear(self, seq: int | None = None) -> None:
        """Forget one sequence, or everything."""
        if seq is None:
            self._c.llama_memory_clear(self._memory, False)
        else:
            self._c.llama_memory_seq_rm(self._memory, seq, -1, -1)
