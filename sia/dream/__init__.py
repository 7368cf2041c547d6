"""Dreaming: what was logged becomes a better model, when it can be proven to be one."""
