"""What ``sia.report`` gives, as text for a terminal of a given width."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sia.entries import Entry, ErrorEntry, Script, Step
from sia.shell.text import Paint, clean, columns, pad, plain, shorten, width_of, wrap

BAR = 24  # cells of a whole bar
OPTIONS_SHOWN = 4
QUEUE_SHOWN = 50
OUTPUT_LINES = 5  # of a script, in short
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar(p: float, cells: int) -> str:
    """A bar of block characters, ``cells`` long for 1.0."""
    whole, part = divmod(round(min(max(p, 0.0), 1.0) * cells * 8), 8)
    return "█" * whole + _EIGHTHS[part].strip()


def _facts(rows: list[tuple[str, str]], width: int, paint: Paint) -> str:
    """``name  value`` a line, the values wrapped in their column."""
    margin = max(width_of(name) for name, _ in rows) + 4
    lines = []
    for name, value in rows:
        first, *more = wrap(clean(value), max(20, width - margin))
        lines.append("  " + paint("dim", pad(name, margin - 2)) + first)
        lines += [" " * margin + line for line in more]
    return "\n".join(lines)


def paragraph(text: str, width: int, paint: Paint = plain, style: str = "") -> str:
    """Clean, wrapped and indented."""
    lines = wrap(clean(text), max(20, width - 3))
    return "\n".join("  " + paint(style, line) if line else "" for line in lines)


def _plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _moment(stamp: str, now: str = "") -> str:
    """A time without its zone; on the day of ``now`` the hour alone."""
    moment = datetime.fromisoformat(stamp)
    same_day = now and datetime.fromisoformat(now).date() == moment.date()
    return f"{moment:%H:%M}" if same_day else f"{moment.day} {moment:%b %H:%M}"


# status


def render_status(data: dict[str, Any], width: int = 80, paint: Paint = plain) -> str:
    process, question, reminders = data["process"], data["question"], data["reminders"]
    doing = "idle" if data["running"] else "not running"
    if process:
        doing = f"{process['skill'] or 'finding a skill'}: {process['text']} ({process['run']})"
    waiting = f"{data['waiting']} waiting" if data["waiting"] else "empty"
    if data["unread"]:
        waiting += f", {_plural(data['unread'], 'input')} not yet looked at"
    rows = [("process", doing), ("queue", waiting)]
    if question:
        options = f" ({', '.join(question['options'])})" if question["options"] else ""
        rows.append(("question", f"{question['text']}{options}"))
    kept = _plural(reminders["waiting"], "reminder") if reminders["waiting"] else "none"
    if reminders["next"]:
        kept += f", next {_moment(reminders['next']['due'])}: {reminders['next']['text']}"
    rows.append(("reminders", kept))
    rows += [("script", f"{item['id']} $ {item['command']}") for item in data["background"]]
    if data["decider"]:
        rows.append(("decider", data["decider"]))
    revision = data["revision"]
    rows.append(("revision", revision["problem"] or f"{revision['id']} ({revision['readout']})"))
    session = f"{data['session']}, iteration {data['iteration']}" if data["session"] else "none yet"
    rows += [("session", session), ("home", data["home"])]
    return _facts(rows, width, paint)


# queue


def render_queue(data: list[dict[str, Any]], width: int = 80, paint: Paint = plain) -> str:
    if not data:
        return "  nothing waits"
    waiting = [row["id"] for row in data if row["status"] in ("waiting", "unread")]
    hidden = set(waiting[QUEUE_SHOWN:])
    lines = []
    for row in data:
        if row["id"] in hidden:
            continue
        text = shorten(clean(row["text"]), width - 16)
        urgency = "   –" if row["status"] == "unread" else f"{row['effective']:.2f}"
        lines.append(f"  {paint('accent', pad(row['id'], 6))}{urgency}  {text}")
        since = f"since {_moment(row['waits_since'])}"
        if row["status"] == "waiting":
            since += f", {_turn(row)}"
        for line in wrap(clean(f"{row['why']} · {since}"), width - 14):
            lines.append(" " * 14 + paint("dim", line))
    if hidden:
        lines.append("  " + paint("dim", f"and {len(hidden):,} more that wait"))
    return "\n".join(lines)


def _turn(row: dict[str, Any]) -> str:
    """When a waiting request runs at the latest."""
    words = f"its turn at the latest after {_moment(row['latest'], row['waits_since'])}"
    if row["before"]:
        words += f" and the {row['before']:,} that came before it"
    return words


def render_request(data: dict[str, Any], width: int = 80, paint: Paint = plain) -> str:
    """One request whole."""
    rows = [
        ("request", data["text"]),
        ("status", data["why"] if data["status"] != "waiting" else f"waiting: {data['why']}"),
        ("source", f"{data['source']}, {_moment(data['waits_since'])}"),
        ("urgency", f"{data['urgency']:.2f}"),
    ]
    if data["status"] == "waiting":
        rows[-1] = ("urgency", f"{data['urgency']:.2f}, by waiting {data['effective']:.2f} now")
        rows.append(("turn", _turn(data)))
    if data["skill"]:
        count = len(data["actions"])
        step = min(data["step"], count)
        action = f", action {step} of {count}: {data['actions'][step - 1]}" if step else ""
        used = f", {data['seconds']:g} seconds used" if data["seconds"] else ""
        name = "no skill covers it" if data["skill"] == "-" else data["skill"]
        rows.append(("skill", name + action + used))
    if data["question"]:
        options = ", ".join(data["question"]["options"])
        rows.append(("question", data["question"]["text"] + (f" ({options})" if options else "")))
    if data["attempt"] > 1:
        rows.append(("attempt", str(data["attempt"])))
    if data["displaced_by"]:
        rows.append(("interrupted", f"by {data['displaced_by']}"))
    if data["unread"]:
        rows.append(("unread", _plural(data["unread"], "input")))
    if data["outcome"]:
        rows.append(("outcome", data["outcome"]))
    return paragraph(data["id"], width, paint, "bold") + "\n" + _facts(rows, width, paint)


# suggestions


def render_suggestions(data: list[dict[str, Any]], width: int = 80, paint: Paint = plain) -> str:
    """Those that are still wanted."""
    lines = []
    for row in data:
        if row["event"] not in ("suggested", "covered"):
            continue
        text = shorten(clean(row["query"]), width - 10)
        lines.append(f"  {paint('accent', pad(row['id'], 6))}{text}")
        if row["skill"]:
            words = f"{row['skill']} seems to do it: sia suggestions run {row['id']}"
        elif row["kind"] == "create_skill":
            words = f"{row['category']} has no skill for it"
        else:
            words = "no category covers it"
        times = f" · asked {row['count']} times" if row["count"] > 1 else ""
        since = f" · since {_moment(row['time'])}"
        for line in wrap(clean(words + times + since), width - 10):
            lines.append(" " * 8 + paint("dim", line))
    return "\n".join(lines) or "  nothing was asked for that no skill covers"


# skills


def render_skills(data: list[dict[str, Any]], width: int = 80, paint: Paint = plain) -> str:
    if not data:
        return "  there are no skills: put folders into skills/"
    names = [skill["id"] for category in data for skill in category["skills"]]
    margin = max(map(width_of, names), default=0) + 4
    blocks = []
    for category in data:
        blocks.append(paragraph(category["description"], width, paint, "bold"))
        if not category["skills"]:
            words = f"no skill yet: put folders into skills/{category['category']}/"
            blocks.append("  " + paint("dim", words))
        for skill in category["skills"]:
            text = clean(skill["description"])
            first, *more = wrap(text, max(20, width - margin))
            blocks.append("  " + paint("accent", pad(skill["id"], margin - 2)) + first)
            blocks += [" " * margin + line for line in more]
            if skill["missing"]:
                needs = skill["missing"].removeprefix(f"{skill['id']} ")
                missing = wrap(clean(needs), max(20, width - margin))
                blocks += [" " * margin + paint("warning", line) for line in missing]
        blocks.append("")
    return "\n".join(blocks[:-1])


def render_skill(skill: dict[str, Any], width: int = 80, paint: Paint = plain) -> str:
    """One skill whole."""
    rows = [
        ("actions", ", ".join(skill["actions"]) or "worked by the generator"),
        ("effects", f"{skill['effects']}, stakes {skill['stakes']}"),
        ("budget", f"{skill['seconds']:g} seconds"),
        ("folder", skill["folder"]),
    ]
    if skill["missing"]:
        rows.insert(0, ("missing", skill["missing"]))
    blocks = [
        paragraph(skill["id"], width, paint, "bold"),
        paragraph(skill["description"], width),
        "",
        _facts(rows, width, paint),
    ]
    if skill["body"].strip():
        blocks += ["", paragraph(_reflowed(skill["body"]), width)]
    return "\n".join(blocks)


def _reflowed(text: str) -> str:
    """Paragraphs of prose on one line each; lists, headings and code stay as they are."""
    blocks = re.split(r"\n\s*\n", text.strip())
    return "\n\n".join(
        block if re.search(r"(?m)^(\s|[-*#>|`]|\d+\.)", block) else " ".join(block.split())
        for block in blocks
    )


# context


def render_context(
    data: dict[str, Any] | None, width: int = 80, paint: Paint = plain, whole: bool = True
) -> str:
    """The size of each section, then the file as it is, or (not ``whole``) its entries in short."""
    if data is None:
        return "  there is no iteration yet"
    about = "" if data["counted"] else "about "
    title = f"iteration {data['n']} of {data['session']}, {about}{data['tokens']:,} tokens"
    most = max(section["tokens"] for section in data["sections"]) or 1
    cells = min(BAR, max(0, width - 40))
    rows = [
        [
            section["name"],
            f"{section['entries']:>3}",
            f"{section['tokens']:>6,}",
            bar(section["tokens"] / most, cells),
        ]
        for section in data["sections"]
    ]
    lines = ["  " + paint("bold", title), ""]
    lines += ["  " + name + count + tokens + paint("accent", line)
              for name, count, tokens, line in columns(rows)]
    if not whole:
        lines += ["", *render_rows(data["entries"], width, paint)]
    lines += ["", "  " + paint("dim", data["file"])]
    return "\n".join([*lines, "", clean(data["xml"].rstrip())] if whole else lines)


def compact(entry: Entry) -> list[tuple[str, str]]:
    """An entry as (name, line) rows."""
    if isinstance(entry, Script):
        code = "" if entry.exit_code is None else f" {entry.exit_code}"
        rows = [(f"{entry.mode} {entry.id}", f"$ {entry.command.text}  [{entry.status}{code}]")]
        for output in (entry.stdout, entry.stderr):
            lines = [line for line in output.text.split("\n") if line.strip()]
            rows += [("", line) for line in lines[:OUTPUT_LINES]]
            if len(lines) > OUTPUT_LINES:
                rows.append(("", f"… {len(lines) - OUTPUT_LINES} more lines"))
        return rows
    name, text = type(entry).__name__.removesuffix("Entry").lower(), entry.text.text
    if isinstance(entry, Step):
        text = " ".join(filter(None, (entry.skill, entry.action, entry.status, text)))
    if isinstance(entry, ErrorEntry) and entry.line:
        text = f"line {entry.line}, column {entry.column}: {text}"
    return [(f"{name} {entry.id}", text)]


def render_rows(rows: Sequence[tuple[str, str]], width: int, paint: Paint) -> list[str]:
    """(name, line) rows, each on one line."""
    margin = max((width_of(name) for name, _ in rows), default=0) + 4
    return [
        "  " + paint("dim", pad(name, margin - 2)) + shorten(clean(line), width - margin)
        for name, line in rows
    ]


# history


def render_history(data: list[dict[str, Any]], width: int = 80, paint: Paint = plain) -> str:
    if not data:
        return "  there is no iteration yet"
    lines: list[str] = []
    session = ""
    for row in data:
        if row["session"] != session:
            session = row["session"]
            lines += [*([""] if lines else []), "  " + paint("bold", session)]
        number = paint("dim", f"{row['n']:>5}")
        if row["problem"]:
            lines.append(f"{number}  {paint('error', clean(row['problem']))}")
            continue
        what = " · ".join(clean(part) for part in (row["skill"], row["request"]) if part)
        head = f"{_moment(row['time'])}  {what or 'nothing to do'}"
        lines.append(f"{number}  {shorten(head, width - 7)}")
        decided = " ".join(f"{d['phase']}={d['selected']} {d['p']:.2f}" for d in row["decisions"])
        for text, style in ((decided, "dim"), (row["response"], "accent")):
            if text:
                lines.append(" " * 7 + paint(style, shorten(clean(text), width - 7)))
    return "\n".join(lines)


# decisions


def render_why(data: list[dict[str, Any]], width: int = 80, paint: Paint = plain) -> str:
    """The decisions as small bars; the chosen option is marked."""
    if not data:
        return "  nothing has been decided yet"
    lines: list[str] = []
    about = ""
    for row in data:
        if row["about"] != about:
            about = row["about"]
            head = shorten(clean(about), width - 12)
            lines += [*([""] if lines else []), f"  {paint('bold', head)}  "
                      + paint("dim", row["run"] or "")]
        lines += ["", *_decision(row, width, paint)]
    revision = data[-1]["revision"]
    return "\n".join([*lines, "", "  " + paint("dim", f"revision {revision}")])


def _decision(row: dict[str, Any], width: int, paint: Paint) -> list[str]:
    needs = ""
    if row["threshold"] is not None:
        needs = f"{row['threshold_option']} counts from {row['threshold']:.2f}"
    lines = [f"  {paint('accent', clean(row['phase']))}  {paint('dim', needs)}".rstrip()]
    shown = row["options"][:OPTIONS_SHOWN]
    if row["selected"] not in [option["id"] for option in shown]:
        shown = [*shown, *(o for o in row["options"] if o["id"] == row["selected"])]
    names = max(width_of(clean(option["id"])) for option in shown)
    names = min(names, max(8, width // 3))
    cells = min(BAR, max(0, width - names - 14))
    for option in shown:
        chosen = option["id"] == row["selected"]
        name = pad(shorten(clean(option["id"]), names), names)
        text = f"{'●' if chosen else ' '} {name}  {option['p']:.2f}"
        blocks = bar(option["p"], cells)
        if chosen:
            lines.append(f"    {paint('bold', text)}  {paint('accent', blocks)}")
        else:
            lines.append("    " + paint("dim", f"{text}  {blocks}"))
    if len(row["options"]) > len(shown):
        lines.append("      " + paint("dim", f"and {len(row['options']) - len(shown)} less likely"))
    return lines
