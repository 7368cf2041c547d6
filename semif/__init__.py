"""SemIf: decisions by option logits, read in one forward pass, with nothing generated.

`load` finds model and revision, `Engine` makes a decider of them:

    model, revision = semif.load()
    with semif.Engine(model, revision) as engine:
        answers = engine.decide([semif.Decision(...)])
"""

from semif.engine import Engine, load
from semif.errors import Aborted, DecisionError, FileError, ModelError, RemoteError, SemifError
from semif.revision import Registry, Revision, shipped
from semif.types import Answer, Decider, Decision, Option

__all__ = [
    "Aborted",
    "Answer",
    "Decider",
    "Decision",
    "DecisionError",
    "Engine",
    "FileError",
    "ModelError",
    "Option",
    "Registry",
    "RemoteError",
    "Revision",
    "SemifError",
    "load",
    "shipped",
]
