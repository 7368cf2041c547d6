"""What brings events in: the spool, watched files, the event socket, the end of scripts."""

from sia.inlets.inlets import Inlets

__all__ = ["Inlets"]
