"""Decisions over HTTP: the server, and the deciders that ask one."""
