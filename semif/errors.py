"""Errors of the decision engine: each is one line for the person, with an exit code."""

from __future__ import annotations

from pathlib import Path

EXIT_FAILED = 1
EXIT_UNAVAILABLE = 69
EXIT_CONFIG = 78
INSTALL = "pip install 'sia-agent[dream]'"


def one_line(text: str, limit: int = 400) -> str:
    """A text for one line of a terminal or log: no controls, no escapes, and cut."""
    line = "".join(c if c.isprintable() else " " for c in text)
    return line if len(line) <= limit else line[:limit] + "…"


class SemifError(Exception):
    """Base of every error a caller is expected to show; `exit_code` is for a command line."""

    exit_code = EXIT_FAILED


class DecisionError(SemifError):
    """Bad input data: which row (an id or a line number), which field, and what is wrong.

    Its text is one line, whatever stands in the row; `row` and `field` are as they were.
    """

    def __init__(self, row: str, field: str, message: str) -> None:
        super().__init__(": ".join(map(one_line, (row, field, message))))
        self.row = row
        self.field = field
        self.message = message


class TooLong(DecisionError):
    """A decision whose prompt needs `tokens` tokens or more, which the context does not hold."""

    def __init__(self, row: str, field: str, tokens: int, limit: int) -> None:
        message = f"is too long: the prompt needs {tokens} tokens or more, the context holds"
        super().__init__(row, field, f"{message} {limit}")
        self.tokens = tokens


class ModelError(SemifError):
    """A model, adapter or revision that is missing (69) or damaged or mismatched (78)."""

    def __init__(self, message: str, exit_code: int = EXIT_CONFIG) -> None:
        super().__init__(message)
        self.exit_code = exit_code

    @classmethod
    def missing(cls, message: str) -> ModelError:
        return cls(message, EXIT_UNAVAILABLE)


class RemoteError(SemifError):
    """A server that is to decide cannot be reached, or answers what it should not."""

    exit_code = EXIT_UNAVAILABLE


class Aborted(SemifError):
    """A running decode was stopped by the session's abort hook; its tokens were forgotten."""

    def __init__(self) -> None:
        super().__init__("stopped before the model had finished")


class FileError(SemifError):
    """A file could not be written or is damaged; the message says what was kept."""

    def __init__(self, path: Path, message: str, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.exit_code = exit_code
