"""Iterations as XML: what is written is read back the same, and nothing foreign gets in."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from sia.context import (
    SIZE_LIMIT,
    ContextError,
    parse_document,
    parse_entry,
    parse_iteration,
    to_xml,
)
from sia.entries import (
    ILLEGAL,
    INLINE_LIMIT,
    DecisionView,
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
from sia.prompt import entry_text
from sia.scripts import Output

# What breaks writers of XML, mixed into whatever hypothesis thinks of.
NASTY = st.sampled_from(
    ["]]>", "]]", "\r", "\r\n", "\n", "\t", " ", "&", "<", "&lt;", "\0", "\x0b", "\x1b[31m",
     "\ud800", "\udfff", "\ufffe", "\uffff", "\ufffd", "é", "漢", "👩‍👧", "<![CDATA[", "<stop/>",
     "<!--", "<?pi?>", '<context time="x">', "\x85", "\u2028", '"', "'"]
)  # fmt: skip
ANY = st.lists(NASTY | st.text(st.characters(codec=None), max_size=8), max_size=8).map("".join)
LEGAL = ANY.map(lambda text: ILLEGAL.sub("", text))
WORD = st.text("abcxyz0123456789/_-. ", max_size=8)
WHOLE = st.none() | st.integers(0, 2**50)

texts = st.builds(Text, LEGAL) | st.builds(
    Text, LEGAL, st.just(True), st.integers(0, 2**40), st.just("000007.d/e3.input") | st.just("")
)
outputs = LEGAL.map(lambda text: Output(text, False, len(text.encode()))) | st.builds(
    Output, LEGAL, st.just(True), st.integers(0, 2**40), st.just("scripts/e3/stdout")
)
exact = st.integers(0, 999_999).map(lambda n: n / 1_000_000)
centi = st.integers(0, 100).map(lambda n: n / 100)


def entries(id: str) -> st.SearchStrategy:
    own = st.just(id)
    return st.one_of(
        st.builds(Reasoning, own, texts),
        st.builds(ReadStdin, own, texts),
        st.builds(InputEntry, own, LEGAL, WORD, texts),
        st.builds(WriteStdout, own, WORD, texts),
        st.builds(Step, own, WORD, WORD, WORD, WORD, texts),
        st.builds(ErrorEntry, own, texts, st.integers(1, 99), st.integers(0, 99)),
        st.builds(ErrorEntry, own, texts),
        st.builds(Note, own, texts),
        st.builds(
            Script, own, st.sampled_from(["single_shot", "repeat", "background"]), texts, WORD,
            st.none() | st.integers(0, 255), outputs, outputs, LEGAL, WORD,
        ),
    )  # fmt: skip


moments = st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1)).map(
    lambda moment: moment.replace(microsecond=0, tzinfo=timezone(timedelta(hours=5, minutes=45)))
)
iterations = st.builds(
    Iteration,
    session=WORD,
    n=st.integers(1, 10**6),
    figures=st.builds(
        Figures, moments, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, st.integers(0, 9)
    ),
    entries=st.integers(0, 4).flatmap(
        lambda count: st.tuples(*(entries(f"e{n}") for n in range(count)))
    ),
    process=st.none() | st.builds(ProcessView, WORD, st.integers(0, 9), WORD, LEGAL),
    queue=st.lists(st.builds(QueuedView, WORD, centi, LEGAL, LEGAL), max_size=2).map(tuple),
    queue_depth=st.integers(2, 9),
    decisions=st.lists(
        st.builds(
            DecisionView, WORD, WORD, WORD, LEGAL, LEGAL, LEGAL,
            st.lists(st.tuples(LEGAL, LEGAL, exact), max_size=3).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
    response=st.none()
    | st.builds(Response, LEGAL, st.sampled_from(["generator", "person"]), st.booleans()),
    run=WORD,
    parent=WORD,
    generator=LEGAL,
)  # fmt: skip


@given(iterations)
def test_an_iteration_comes_back_as_it_was(iteration: Iteration) -> None:
    data = to_xml(iteration)
    assert parse_iteration(data) == iteration
    assert to_xml(parse_iteration(data)) == data


@given(ANY, st.data())
def test_any_text_comes_back_or_says_that_it_lost_something(text: str, data: st.DataObject) -> None:
    entry = data.draw(entries("e1"))
    shown = Text.of(text)
    entry = replace(entry, **{"command" if isinstance(entry, Script) else "text": shown})
    back = parse_entry(parse_document(entry_text(entry).encode()))
    assert back == entry
    found = back.command if isinstance(back, Script) else back.text
    assert found.text == ILLEGAL.sub("�", text)
    assert found.lossy == bool(ILLEGAL.search(text))
    assert found.bytes == (len(text.encode("utf-8", "surrogatepass")) if found.lossy else 0)


@settings(max_examples=50)
@given(iterations)
def test_a_context_nests_as_text(inner: Iteration) -> None:
    nested = to_xml(inner).decode()
    outer = replace(inner, entries=(Reasoning("e1", Text.of(nested)),), queue_depth=2)
    found = parse_iteration(to_xml(outer)).entries
    assert found[0].text == Text(nested)
    assert parse_iteration(found[0].text.text.encode()) == inner


def test_the_file_is_as_described() -> None:
    figures = Figures(datetime(2026, 11, 30, 15, tzinfo=timezone(timedelta(hours=1))), 12, stdin=1)
    iteration = Iteration(
        "20261130T140000Z-7f3a", 42, figures,
        entries=(
            Script("e1", "repeat", Text("ls tasks"), "done", 0, Output("a\n", False, 2)),
            ReadStdin("e9", Text("a && b")),
            Reasoning("e10", Text("x]]>y\rz")),
        ),
        process=ProcessView("email/compose", 2, "r118"),
        queue=(QueuedView("r119", 0.71, "typed", "später"),),
        queue_depth=1,
        response=Response("<stop/>"),
        run="r118",
    )  # fmt: skip
    text = to_xml(iteration).decode()
    assert text.startswith("<?xml version='1.0' encoding='utf-8'?>\n<iteration session=")
    assert (
        '<context time="2026-11-30T15:00:00+01:00" cpu="12" gpu="" memory_used="" memory_total="" '
        'disk_used="" disk_total="" context="" stdin="1">\n'
    ) in text
    assert (
        '<repeat id="e1" status="done" exit_code="0"><![CDATA[ls tasks]]>'
        "<stdout><![CDATA[a\n]]></stdout><stderr/></repeat>\n"
    ) in text
    assert '<read_stdin id="e9"><![CDATA[a && b]]></read_stdin>\n' in text
    assert '<reasoning id="e10">x]]&gt;y&#13;z</reasoning>\n' in text
    assert '<request id="r119" urgency="0.71" source="typed"><![CDATA[später]]></request>' in text
    assert '<response edited="false" by="generator"><![CDATA[<stop/>]]></response>' in text


def test_a_block_over_the_limit_is_cut_and_says_how_long_it_was() -> None:
    shown = Text.of("é" * (INLINE_LIMIT + 5))
    assert (len(shown.text), shown.lossy, shown.bytes) == (INLINE_LIMIT, True, 2_000_010)
    assert Text.of("x" * INLINE_LIMIT) == Text("x" * INLINE_LIMIT)


def test_a_response_that_xml_cannot_hold_is_marked() -> None:
    figures = Figures(datetime(2026, 1, 1, tzinfo=UTC))
    back = parse_iteration(to_xml(Iteration("s", 1, figures, response=Response("a\0b"))))
    assert back.response == Response("a�b", lossy=True)


HEAD = b'<iteration session="s" n="1">\n<context time="2026-01-01T00:00:00+00:00">\n'
TAIL = b"\n</context></iteration>"


@pytest.mark.parametrize(
    ("data", "message", "line", "column"),
    [
        (b"<!DOCTYPE iteration>" + HEAD + TAIL, "DOCTYPE", 1, 1),
        (b'<!DOCTYPE i [<!ENTITY a "b">]>' + HEAD + TAIL, "DOCTYPE", 1, 1),
        (b'<!DOCTYPE i [<!ENTITY a "b">]><i>&a;</i>', "DOCTYPE", 1, 1),
        (b'<!DOCTYPE i [<!ENTITY a SYSTEM "file:///etc/passwd">]><i>&a;</i>', "DOCTYPE", 1, 1),
        (b'<!DOCTYPE i SYSTEM "http://127.0.0.1:9/x.dtd"><i/>', "DOCTYPE", 1, 1),
        (b"<?evil x?>\n" + HEAD + TAIL, "processing instruction", 1, 1),
        (HEAD + b"<note id='e1'>a<?evil x?>b</note>" + TAIL, "processing instruction", 3, 1),
        (HEAD + TAIL + b"\n<?evil x?>", "processing instruction", 5, 1),
        (HEAD + b"<note id='e1'>&undefined;</note>" + TAIL, "undefined", 3, 0),
        (HEAD + b"<note id='e1'>a & b</note>" + TAIL, "EntityRef", 3, 0),
        (HEAD + b"<a>" * 12 + b"</a>" * 12 + TAIL, "too deep", 3, 1),
        (HEAD + b"<a>" * 300 + b"</a>" * 300 + TAIL, "depth", 3, 0),
        (b"", "empty", 1, 0),
        (b"\xff\xfe<\x00i\x00/\x00>\x00", "UTF-8|not well-formed", 1, 0),
        (HEAD + b"<note id='e1'>\xff</note>" + TAIL, "Invalid bytes", 3, 0),
        (HEAD + b"\n\n<laugh id='e1'/>" + TAIL, "unknown entry <laugh>", 5, 1),
        (HEAD + b"<note>x</note>" + TAIL, "<note> lacks id=", 3, 1),
        (HEAD + b"<input id='e1' run='r1'>x</input>" + TAIL, "<input> lacks source=", 3, 1),
        (HEAD + b"<note id='e1'/>\n<note id='e1'/>" + TAIL, "entry id e1 stands twice", 4, 1),
        (HEAD + b"<error id='e1' line='x'/>" + TAIL, "line='x', not a whole number", 3, 1),
        (HEAD + b"<queue depth='1'><request id='r1' urgency='?'/></queue>" + TAIL, "urgency", 3, 1),
        (b"<iteration session='s' n='a'><context time='2026-01-01'/></iteration>", "n='a'", 1, 1),
        (b"<iteration session='s' n='1'><context time='soon'/></iteration>", "time='soon'", 1, 1),
        (b"<iteration n='1'><context time='2026-01-01'/></iteration>", "lacks session=", 1, 1),
        (b"<iteration session='s' n='1'/>", "lacks its <context>", 1, 1),
        (b"<html/>", "<html> is not an <iteration>", 1, 1),
    ],
)
def test_what_is_wrong_is_named_with_its_place(
    data: bytes, message: str, line: int, column: int
) -> None:
    with pytest.raises(ContextError, match=message) as caught:
        parse_iteration(data)
    assert caught.value.line == line
    assert caught.value.column == column or column == 0
    assert f"line {line}" in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_too_large_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(ContextError, match="more than the 67,108,864 allowed"):
        parse_document(b"<i>" + b" " * SIZE_LIMIT + b"</i>")


def test_entities_do_not_swell() -> None:
    bomb = b'<!DOCTYPE l [<!ENTITY a "aaaaaaaaaa">'
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        bomb += f'<!ENTITY {name} "{f"&{before};" * 10}">'.encode()
    with pytest.raises(ContextError):
        parse_document(bomb + b"]><l>&i;</l>")


def test_comments_are_not_part_of_a_text() -> None:
    element = parse_document(b"<note id='e1'>a<!-- b -->c</note>")
    assert parse_entry(element) == Note("e1", Text("ac"))
    assert not isinstance(element, etree._Comment)
