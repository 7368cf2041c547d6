"""Narrow writing tasks for a small model: a prompt and a grammar each, and code that checks facts.

`Writer` writes; `facts.broken` says what a text lost or invented; `measure` proves an adapter on
the golden set, and `train` makes one.
"""
