"""Tuning an adapter: what a step needs, from rows packed to weights exported."""
