"""Scripts in three modes, run by a runner that outlives the agent."""

from sia.scripts.policy import Policy, Refused, default_policy
from sia.scripts.scripts import ScriptLimits, Scripts, ScriptState
from sia.scripts.shown import Output
from sia.scripts.watch import Cancel, Until

__all__ = [
    "Cancel",
    "Output",
    "Policy",
    "Refused",
    "ScriptLimits",
    "ScriptState",
    "Scripts",
    "Until",
    "default_policy",
]
