"""Iterations as XML, both ways: a pure function of typed entries, and a hardened parser.

Blocks are CDATA; one that holds ``]]>`` or a carriage return is entity-escaped whole, so every
legal text comes back as it was. No white space is added or stripped inside an entry.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from typing import Any

from lxml import etree

from sia.entries import (
    ILLEGAL,
    MODES,
    DecisionView,
    Entry,
    ErrorEntry,
    Figures,
    InputEntry,
    Iteration,
    Note,
    ProcessView,
    QueuedView,
    ReadStdin,
    Reasoning,
    Response,
    Script,
    Step,
    Text,
    WriteStdout,
)
from sia.errors import SiaError
from sia.scripts.shown import Output

SIZE_LIMIT = 64 * 1024 * 1024  # bytes of one file
DEPTH_LIMIT = 12

_TEXT_KINDS: dict[str, type] = {
    "reasoning": Reasoning,
    "read_stdin": ReadStdin,
    "input": InputEntry,
    "write_stdout": WriteStdout,
    "step": Step,
    "error": ErrorEntry,
    "note": Note,
}
_TAGS = {kind: tag for tag, kind in _TEXT_KINDS.items()}


class ContextError(SiaError):
    """A saved context that is not well formed, or not one of ours."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(f"{message} (line {line}, column {column})" if line else message)
        self.line, self.column = line, column


def put_block(element: etree._Element, text: str) -> None:
    """Set ``text`` as the element's block; what XML cannot hold is shown as U+FFFD."""
    if not text:
        return
    text = ILLEGAL.sub("�", text)
    element.text = text if "]]>" in text or "\r" in text else etree.CDATA(text)


def _attribute(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ILLEGAL.sub("�", str(value))


def _element(parent: etree._Element | None, tag: str, /, **attributes: Any) -> etree._Element:
    values = {name: _attribute(value) for name, value in attributes.items()}
    return etree.Element(tag, values) if parent is None else etree.SubElement(parent, tag, values)


def _lossy(block: Text | Output) -> dict[str, Any]:
    if not (block.lossy or block.file):
        return {}
    return {"lossy": block.lossy, "bytes": block.bytes, "file": block.file}


def entry_element(entry: Entry, parent: etree._Element | None = None) -> etree._Element:
    """One entry as an element."""
    if isinstance(entry, Script):
        return _script_element(entry, parent)
    attributes: dict[str, Any] = {"id": entry.id}
    if isinstance(entry, InputEntry):
        attributes |= {"source": entry.source, "run": entry.run}
    elif isinstance(entry, WriteStdout):
        attributes |= {"run": entry.run}
    elif isinstance(entry, Step):
        attributes |= {"skill": entry.skill, "action": entry.action, "status": entry.status}
        attributes |= {"run": entry.run}
    elif isinstance(entry, ErrorEntry) and entry.line:
        attributes |= {"line": entry.line, "column": entry.column}
    element = _element(parent, _TAGS[type(entry)], **attributes, **_lossy(entry.text))
    put_block(element, entry.text.text)
    return element


def _script_element(entry: Script, parent: etree._Element | None) -> etree._Element:
    attributes: dict[str, Any] = {"id": entry.id, "status": entry.status}
    if entry.run:
        attributes["run"] = entry.run
    if entry.exit_code is not None:
        attributes["exit_code"] = entry.exit_code
    if entry.note:
        attributes["note"] = entry.note
    element = _element(parent, entry.mode, **attributes, **_lossy(entry.command))
    put_block(element, entry.command.text)
    for name, output in (("stdout", entry.stdout), ("stderr", entry.stderr)):
        put_block(_element(element, name, **_lossy(output)), output.text)
    return element


def figures_element(figures: Figures, tag: str = "context") -> etree._Element:
    return _element(
        None,
        tag,
        time=figures.time.isoformat(timespec="seconds"),
        cpu=figures.cpu,
        gpu=figures.gpu,
        memory_used=figures.memory_used,
        memory_total=figures.memory_total,
        disk_used=figures.disk_used,
        disk_total=figures.disk_total,
        context=figures.context,
        stdin=figures.stdin,
    )


def put_now(parent: etree._Element, iteration: Iteration) -> None:
    """Append the process and the queue: what always changes."""
    process = iteration.process
    if process:
        element = _element(
            parent, "process", skill=process.skill, step=process.step, run=process.run
        )
        put_block(element, process.text)
    queue = _element(parent, "queue", depth=iteration.queue_depth)
    for item in iteration.queue:
        request = _element(
            queue, "request", id=item.id, urgency=f"{item.urgency:.2f}", source=item.source
        )
        put_block(request, item.text)


def to_element(iteration: Iteration) -> etree._Element:
    root = _element(
        None,
        "iteration",
        session=iteration.session,
        n=iteration.n,
        parent=iteration.parent,
        run=iteration.run,
        decision_revision=iteration.decision_revision,
        generator=iteration.generator,
        prompt_version=iteration.prompt_version,
        system_sha256=iteration.system_sha256,
        prompt_sha256=iteration.prompt_sha256,
    )
    context = figures_element(iteration.figures)
    root.append(context)
    for entry in iteration.entries:
        entry_element(entry, context)
    put_now(context, iteration)
    decisions = _element(root, "decisions")
    for decision in iteration.decisions:
        _put_decision(decisions, decision)
    response = iteration.response
    if response:
        element = _element(root, "response", edited=response.edited, by=response.by)
        if response.lossy or ILLEGAL.search(response.text):
            element.set("lossy", "true")
        put_block(element, response.text)
    return root


def _put_decision(parent: etree._Element, decision: DecisionView) -> None:
    element = _element(
        parent,
        "decision",
        id=decision.id,
        phase=decision.phase,
        **{"from": decision.source, "selected": decision.selected},
    )
    put_block(_element(element, "question"), decision.question)
    put_block(_element(element, "state"), decision.state)
    for id, description, p in decision.options:
        put_block(_element(element, "option", id=id, p=f"{p:.6f}"), description)


def to_xml(iteration: Iteration) -> bytes:
    """The iteration file: UTF-8, one entry a line between entries, nothing added inside them."""
    root = to_element(iteration)
    root.text = "\n"
    for section in root:
        section.tail = "\n"
        if section.tag in ("context", "decisions") and len(section):
            section.text = "\n"
            for child in section:
                child.tail = "\n"
    return etree.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def parse_document(data: bytes, limit: int = SIZE_LIMIT) -> etree._Element:
    """Parse foreign XML with no DOCTYPE, no processing instruction and bounds on size and depth."""
    if len(data) > limit:
        raise ContextError(f"{len(data):,} bytes of XML, more than the {limit:,} allowed")
    parser = etree.XMLParser(
        encoding="utf-8",
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        strip_cdata=False,
        remove_comments=True,
        # libxml2 itself stops at 10 MB of one text, which no block of ours reaches.
        huge_tree=False,
    )
    try:
        root = etree.fromstring(data, parser)
    except etree.XMLSyntaxError as error:
        line, column = error.position
        message = error.msg.splitlines()[0].split(", line ")[0]  # it may quote what it met
        raise ContextError(f"not well-formed XML: {message}", line, column) from None
    if root.getroottree().docinfo.internalDTD is not None:
        raise ContextError("a DOCTYPE is not allowed here: remove it", 1, 1)
    _refuse_foreign(root)
    return root


def _refuse_foreign(root: etree._Element) -> None:
    # Siblings of the root too: a processing instruction may stand before or after it.
    outside = list(root.itersiblings(preceding=True)) + list(root.itersiblings())
    for node in outside:
        if isinstance(node, etree._ProcessingInstruction):
            raise ContextError("a processing instruction is not allowed here", node.sourceline, 1)
    stack = [(root, 1)]
    while stack:
        node, depth = stack.pop()
        if isinstance(node, (etree._ProcessingInstruction, etree._Entity)):
            kind = "processing instruction" if node.tag is etree.PI else "entity"
            raise ContextError(f"a {kind} is not allowed here", node.sourceline or 1, 1)
        if depth > DEPTH_LIMIT:
            raise ContextError("elements are nested too deep", node.sourceline or 1, 1)
        stack.extend((child, depth + 1) for child in node)


def _block(element: etree._Element) -> Text:
    lossy = element.get("lossy") == "true"
    file = element.get("file", "")
    return Text(element.text or "", lossy, _int(element, "bytes") or 0, file)


def _output(element: etree._Element | None) -> Output:
    if element is None:
        return Output()
    block = _block(element)
    size = block.bytes if element.get("bytes") else len(block.text.encode())
    return Output(text=block.text, lossy=block.lossy, bytes=size, file=block.file)


def _int(element: etree._Element, name: str) -> int | None:
    value = element.get(name)
    if not value:
        return None
    try:
        return int(value)
    except ValueError:
        raise ContextError(
            f"<{element.tag}> has {name}={value!r}, not a whole number", element.sourceline, 1
        ) from None


def _float(element: etree._Element, name: str) -> float:
    value = _need(element, name)
    try:
        return float(value)
    except ValueError:
        raise ContextError(
            f"<{element.tag}> has {name}={value!r}, not a number", element.sourceline, 1
        ) from None


def _need(element: etree._Element, name: str) -> str:
    value = element.get(name)
    if value is None:
        raise ContextError(f"<{element.tag}> lacks {name}=", element.sourceline, 1)
    return value


def parse_entry(element: etree._Element) -> Entry:
    if element.tag in MODES:
        return Script(
            id=_need(element, "id"),
            mode=element.tag,
            command=_block(element),
            status=element.get("status", "done"),
            exit_code=_int(element, "exit_code"),
            stdout=_output(element.find("stdout")),
            stderr=_output(element.find("stderr")),
            note=element.get("note", ""),
            run=element.get("run", ""),
        )
    kind = _TEXT_KINDS.get(str(element.tag))
    if kind is None:
        raise ContextError(f"unknown entry <{element.tag}>", element.sourceline, 1)
    fields: dict[str, Any] = {"id": _need(element, "id"), "text": _block(element)}
    if kind is InputEntry:
        fields |= {"source": _need(element, "source"), "run": _need(element, "run")}
    elif kind is WriteStdout:
        fields |= {"run": element.get("run", "")}
    elif kind is Step:
        fields |= {name: element.get(name, "") for name in ("skill", "action", "status", "run")}
    elif kind is ErrorEntry:
        fields |= {"line": _int(element, "line") or 0, "column": _int(element, "column") or 0}
    return kind(**fields)


def _parse_decision(element: etree._Element) -> DecisionView:
    options = tuple(
        (_need(option, "id"), option.text or "", _float(option, "p"))
        for option in element.iterfind("option")
    )
    return DecisionView(
        id=_need(element, "id"),
        phase=_need(element, "phase"),
        source=element.get("from", ""),
        selected=_need(element, "selected"),
        question=element.findtext("question") or "",
        state=element.findtext("state") or "",
        options=options,
    )


def _parse_figures(element: etree._Element) -> Figures:
    try:
        time = datetime.fromisoformat(_need(element, "time"))
    except ValueError:
        raise ContextError(
            f"<context> has time={element.get('time')!r}, not an RFC 3339 time",
            element.sourceline,
            1,
        ) from None
    whole = ("cpu", "gpu", "memory_used", "memory_total", "disk_used", "disk_total", "context")
    values = {name: _int(element, name) for name in whole}
    return Figures(time=time, stdin=_int(element, "stdin") or 0, **values)


def parse_iteration(data: bytes) -> Iteration:
    """The iteration of a file; ContextError names line and column of what is wrong."""
    root = parse_document(data)
    if root.tag != "iteration":
        raise ContextError(f"<{root.tag}> is not an <iteration>", root.sourceline, 1)
    context = root.find("context")
    if context is None:
        raise ContextError("<iteration> lacks its <context>", root.sourceline, 1)
    iteration = Iteration(
        session=_need(root, "session"),
        n=_int(root, "n") or 0,
        figures=_parse_figures(context),
        run=root.get("run", ""),
        parent=root.get("parent", ""),
        decision_revision=root.get("decision_revision", ""),
        generator=root.get("generator", ""),
        prompt_version=root.get("prompt_version", ""),
        system_sha256=root.get("system_sha256", ""),
        prompt_sha256=root.get("prompt_sha256", ""),
        decisions=tuple(_parse_decision(item) for item in root.iterfind("decisions/decision")),
    )
    iteration = _with_context(iteration, context)
    response = root.find("response")
    if response is None:
        return iteration
    value = Response(
        text=response.text or "",
        by=response.get("by", "generator"),
        edited=response.get("edited") == "true",
        lossy=response.get("lossy") == "true",
    )
    return replace(iteration, response=value)


def _with_context(iteration: Iteration, context: etree._Element) -> Iteration:
    entries: list[Entry] = []
    seen: set[str] = set()
    for element in context:
        if element.tag == "process":
            process = ProcessView(
                element.get("skill", ""),
                _int(element, "step") or 0,
                element.get("run", ""),
                element.text or "",
            )
            iteration = replace(iteration, process=process)
        elif element.tag == "queue":
            queue = tuple(
                QueuedView(
                    _need(item, "id"),
                    _float(item, "urgency"),
                    item.get("source", ""),
                    item.text or "",
                )
                for item in element.iterfind("request")
            )
            depth = _int(element, "depth") or len(queue)
            iteration = replace(iteration, queue=queue, queue_depth=depth)
        else:
            entry = parse_entry(element)
            if entry.id in seen:
                raise ContextError(f"entry id {entry.id} stands twice", element.sourceline, 1)
            seen.add(entry.id)
            entries.append(entry)
    return replace(iteration, entries=tuple(entries))


def state_text(state: object) -> str:
    """A decision's state as the file keeps it."""
    return state if isinstance(state, str) else json.dumps(state, ensure_ascii=False)
