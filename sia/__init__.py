"""SIA: a local agent in one shell. See README.md; start reading at ``sia/loop.py``."""

__version__ = "0.1.0"
