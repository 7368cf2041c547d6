"""Forgetting: the one thing that rewrites what was kept."""
