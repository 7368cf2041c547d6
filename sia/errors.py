"""Errors a person sees: one line that says what is wrong and what to do, and an exit code."""

from __future__ import annotations

DONE, SOME_FAILED, USAGE = 0, 1, 2
UNAVAILABLE, RESTART, CONFIGURATION, INTERRUPTED = 69, 75, 78, 130


class SiaError(Exception):
    """A fault of ours or of the machine: ends the command with ``exit_code`` and its one line."""

    exit_code = SOME_FAILED


class UsageError(SiaError):
    exit_code = USAGE


class Unavailable(SiaError):
    """Something this needs is missing or busy (model file, home lock, server)."""

    exit_code = UNAVAILABLE


class ConfigError(SiaError):
    exit_code = CONFIGURATION


class OverLimit(SiaError):
    """More came from a source of input than it may; this one was not taken."""
