"""Replies that are almost XML: one clear error with line and column, or exactly what was meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sia.actions import (
    REPLY_LIMIT,
    ActionError,
    Delete,
    RunScript,
    Say,
    Stop,
    TakeInput,
    Think,
    parse,
    to_xml,
)
from sia.entries import ILLEGAL

SPECIAL = st.sampled_from(["]]>", "&", "<", "<stop/>", "<![CDATA[", "\r", "\r\n", "\n", "é"])
WORDS = (
    st.lists(SPECIAL | st.text(max_size=6), min_size=1, max_size=6)
    .map(lambda parts: ILLEGAL.sub("", "".join(parts)))
    .filter(str.strip)
)
ACTIONS = st.one_of(
    st.builds(Think, WORDS),
    st.builds(Say, WORDS),
    st.builds(RunScript, st.sampled_from(["single_shot", "repeat", "background"]), WORDS),
    st.from_regex("e[0-9]{1,4}", fullmatch=True).map(Delete),
    st.just(TakeInput()),
    st.just(Stop()),
)


@given(ACTIONS)
def test_each_action_comes_back_as_it_was(action: object) -> None:
    assert parse(to_xml(action)) == action


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("<stop/>", Stop()),
        (" \n<stop></stop>\n", Stop()),
        ("<read_stdin/>", TakeInput()),
        ('<delete id="e12"/>', Delete("e12")),
        ("<single_shot>a &amp;&amp; b</single_shot>", RunScript("single_shot", "a && b")),
        ("<repeat><![CDATA[a && b < c]]></repeat>", RunScript("repeat", "a && b < c")),
        ("<background>\n sleep 9 \n</background>", RunScript("background", "\n sleep 9 \n")),
        # A stop that is only quoted does not stop.
        ("<write_stdout><![CDATA[<stop/>]]></write_stdout>", Say("<stop/>")),
        ("<reasoning>&lt;stop/&gt;</reasoning>", Think("<stop/>")),
        # Two CDATA sections are one text: the only way to write ]]> in them.
        ("<reasoning><![CDATA[a]]]]><![CDATA[>b]]></reasoning>", Think("a]]>b")),
        ("<?xml version='1.0'?><stop/>", Stop()),
    ],
)
def test_what_is_well_formed_is_understood(reply: str, action: object) -> None:
    assert parse(reply, ids=["e12"]) == action


NESTED = "<single_shot><![CDATA[echo <![CDATA[x]]> y ]]></single_shot>"


@pytest.mark.parametrize(
    ("reply", "message", "line", "column"),
    [
        ("<single_shot>a && b < c</single_shot>", "belongs into <!\\[CDATA", 1, 17),
        ("<single_shot>\nif a < b\n</single_shot>", "belongs into <!\\[CDATA", 2, 7),
        (NESTED, r"\]\]>", 1, NESTED.index(" y ]]>") + len(" y ") + 1),
        ("I will say it:\n<write_stdout>hi</write_stdout>", "does not begin with an action", 1, 1),
        ("<write_stdout>hi</write_stdout>\nDone!", "exactly one action", 2, 1),
        ("```xml\n<stop/>\n```", "does not begin with an action", 1, 1),
        ("<reasoning>a</reasoning>\n<stop/>", "exactly one action", 2, 1),
        ("<write_stdout>hi\nthere", "close the action's tag", 2, 6),
        ("<write_stdout>hi</write_stdin>", "close the action's tag", 1, 31),
        ("<write_stdout><![CDATA[hi</write_stdout>", "close the action's tag", 1, 41),
        ("<reasoning>so\n <stop/></reasoning>", "<reasoning> holds an element <stop>", 2, 2),
        ("\n\n  <sing>la</sing>", "unknown action <sing>; the actions are reasoning", 3, 3),
        ("", "the reply is empty", 1, 1),
        (" \n ", "the reply is empty", 2, 2),
        ("<write_stdout> </write_stdout>", "<write_stdout> is empty", 1, 1),
        ('<write_stdout id="e1">hi</write_stdout>', "takes no id=", 1, 1),
        ("<stop>now</stop>", "takes no text", 1, 1),
        ("<delete/>", "needs the id of an entry", 1, 1),
        ('\n<delete id="e13"/>', "there is no entry e13 in the context", 2, 1),
        ('<delete id="e12" why="x"/>', "takes no why=", 1, 1),
        ("<!DOCTYPE a [<!ENTITY b 'c'>]><reasoning>&b;</reasoning>", "DOCTYPE", 1, 1),
        ("<reasoning>a\n<?php?></reasoning>", "processing instruction", 2, 1),
        ("<reasoning>&nbsp;</reasoning>", "nbsp", 1, 18),
        ("<reasoning>a\x00b</reasoning>", "PCDATA|Char|not well-formed", 1, 13),
        ("<reasoning>a\ud800b</reasoning>", "Invalid bytes", 1, 13),
    ],
)
def test_the_fault_is_named_with_line_and_column(
    reply: str, message: str, line: int, column: int
) -> None:
    with pytest.raises(ActionError, match=message) as caught:
        parse(reply, ids=["e12"])
    assert (caught.value.line, caught.value.column) == (line, column)
    assert "\n" not in str(caught.value)


def test_an_unknown_id_is_allowed_where_none_are_given() -> None:
    assert parse('<delete id="e13"/>') == Delete("e13")


def test_an_endless_reply_is_refused() -> None:
    with pytest.raises(ActionError, match="more than the 1,000,000 allowed"):
        parse("<reasoning>" + "x" * REPLY_LIMIT + "</reasoning>")


@given(st.text() | st.lists(SPECIAL | st.sampled_from(["<", ">", "stop", "/"])).map("".join))
def test_no_reply_ends_the_program(reply: str) -> None:
    try:
        parse(reply)
    except ActionError as error:
        assert error.line >= 1 and error.column >= 1
