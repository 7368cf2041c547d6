"""GBNF grammars of the writing tasks, and the closing of a text that came to no end."""

from __future__ import annotations

from semif.writing.tasks import CAUSES, Task, Value, ends

# Beyond ASCII: no control characters, no marks that cannot be seen or turn the direction of text
# (the rare ones of old scripts are left to `Task.parse`).
_BEYOND = (
    r"\u00A0-\u00AC\u00AE-\u061B\u061D-\u180D\u180F-\u200A\u200C\u200D\u2010-\u2027\u202F-\u205F"
    r"\u2070-\uD7FF\uE000-\uFEFE\uFF00-\uFFF8\uFFFC\uFFFD\U00010000-\U000DFFFF\U000F0000-\U0010FFFF"
)
_LINE = rf"""
root ::= seen char*
seen ::= [\x21-\x7E{_BEYOND}]
char ::= [\x20-\x7E{_BEYOND}]
"""
_STRING = rf"""
string ::= "\"" first inner* "\""
first ::= [\x21\x23-\x5B\x5D-\x7E{_BEYOND}] | escape
inner ::= [\x20-\x21\x23-\x5B\x5D-\x7E{_BEYOND}] | escape
escape ::= "\\\"" | "\\\\"
"""
_KINDS = {
    "success": "",  # with its cause, in one rule
    "cause": "verdict",
    "id": r'"\"" word ("-" word ("-" word)?)? "\""',
}


def of(task: Task) -> str:
    """GBNF of a task's text: one line, or an object with its keys in order."""
    if not task.keys:
        return _LINE
    parts = []
    for key in task.keys:
        if key == "success":
            continue
        rule = _KINDS.get(key, "string")
        parts.append(rule if key == "cause" else rf'"\"{key}\": " {rule}')
    root = ' ", " '.join(parts)
    causes = " | ".join(rf'"\"{cause}\""' for cause in CAUSES)
    return rf"""
root ::= "{{" {root} "}}"
verdict ::= "\"success\": " ("true, \"cause\": \"none\"" | "false, \"cause\": " cause)
cause ::= {causes}
word ::= [a-z] [a-z]*
{_STRING}"""


def finished(task: Task, text: str) -> str | None:
    """The text up to its last allowed sentence, once another one begins; else None.

    What would have followed is lost, so such a text has not ended by itself.
    """
    if task.sentences is None or len(found := ends(text)) < task.sentences:
        return None
    return text[: found[task.sentences - 1]]


def close(task: Task, text: str) -> str:
    """A whole text of one cut off at its budget, as well formed as the cut allows.

    A line goes back to its last whole sentence, else to its last word; an open string of an object
    is ended after its last word.
    """
    if not task.keys:
        found = ends(f"{text} A")  # the last one may be whole too
        return text[: found[-1]] if found else text.rsplit(" ", 1)[0]
    for stem in (text.rsplit(" ", 1)[0], text):
        for tail in ("", "}", '"}', '\\"}', '", "description": "…"}', '": "…"}', '"…"}'):
            value: Value | None = task.parse(stem + tail)
            if value is not None:
                return stem + tail
    return text
