"""What the grammar lets through is one core action, and nothing that is one is kept out."""

import random
import re

import numpy as np
import pytest
from lxml import etree

from semif.llama import Model
from semif.sampling import Marks, Sampler, marks
from sia.generator.grammar import BODIED, MIN_TOKENS, close_action, core_action, one_of

IDS = ("e1", "e12", "n-7")
ACTIONS = {*BODIED, "delete", "read_stdin", "stop"}


@pytest.fixture(scope="module")
def tiny_marks(tiny: Model) -> Marks:
    return marks(tiny)


def accepts(model: Model, tiny_marks: Marks, grammar: str, text: str) -> bool:
    """Whether the whole text, its tokens pushed on the sampler one by one, is in the grammar."""
    sampler = Sampler(model, tiny_marks, grammar, 0.0, 0)
    try:
        for token in model.tokenize(text, special=False):
            logits = np.zeros(model.n_vocab, dtype=np.float32)
            logits[token] = 1.0
            picked = sampler.pick(logits)
            if picked is None or picked[0] != token:
                return False
        return sampler.may_end()
    finally:
        sampler.close()


@pytest.mark.parametrize(
    "text",
    [
        "<stop/>",
        "<read_stdin/>",
        '<delete id="e1"/>',
        '<delete id="e12"/>',
        "<reasoning>x</reasoning>",
        "<single_shot><![CDATA[a && b < c > d\n\tf]]></single_shot>",
        "<repeat>a &amp;&amp; b &lt; c &gt; d</repeat>",
        "<background>\nsleep 9\n</background>",
        "<write_stdout><![CDATA[\nGrüße, 漢字 👩‍👩‍👧]]></write_stdout>",
        # Brackets around the end of a CDATA: its text is "]", "]]", "a]", "a]]b", "]]b", "]>".
        "<reasoning><![CDATA[]]]></reasoning>",
        "<reasoning><![CDATA[]]]]></reasoning>",
        "<reasoning><![CDATA[a]]]></reasoning>",
        "<reasoning><![CDATA[a]]b]]></reasoning>",
        "<reasoning><![CDATA[]]b]]></reasoning>",
        "<reasoning><![CDATA[]>]]></reasoning>",
        # A tag quoted inside text stays text.
        "<reasoning><![CDATA[<stop/>]]></reasoning>",
    ],
)
def test_lets_through(tiny: Model, tiny_marks: Marks, text: str) -> None:
    assert len(etree.fromstring(text)) == 0  # no elements inside: the premise
    assert accepts(tiny, tiny_marks, core_action(IDS), text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "stop",
        " <stop/>",
        "<stop/>\n",
        "<stop/><stop/>",
        "<stop></stop>",
        "<shout>x</shout>",
        "Sure! <stop/>",
        "```xml\n<stop/>\n```",
        '<delete id="e2"/>',
        '<delete id="e1" id="e12"/>',
        "<delete/>",
        "<reasoning></reasoning>",
        "<reasoning> </reasoning>",
        "<reasoning>\n\n</reasoning>",
        "<reasoning><![CDATA[]]></reasoning>",
        "<reasoning><![CDATA[\n]]></reasoning>",
        "<reasoning>a</repeat>",
        "<reasoning>a < b</reasoning>",
        "<reasoning>a & b</reasoning>",
        "<reasoning>a ]]> b</reasoning>",
        "<reasoning>&nbsp;</reasoning>",
        "<reasoning>&#0;</reasoning>",
        "<reasoning><stop/></reasoning>",
        "<reasoning>a<![CDATA[b]]></reasoning>",
        "<reasoning><![CDATA[a]]>b</reasoning>",
        "<reasoning><![CDATA[a]]><![CDATA[b]]></reasoning>",
        "<reasoning>a",
        "<reasoning>a\r</reasoning>",
        "<reasoning>\x1b[31m</reasoning>",
        "<reasoning><![CDATA[a\x07]]></reasoning>",
        "<reasoning>a\x7f</reasoning>",
        "<reasoning>a\x9b</reasoning>",
        "<reasoning>a\ufffe</reasoning>",
        '<!DOCTYPE a [<!ENTITY b "c">]><stop/>',
        "<?xml version='1.0'?><stop/>",
        '<reasoning id="e1">a</reasoning>',
    ],
)
def test_keeps_out(tiny: Model, tiny_marks: Marks, text: str) -> None:
    assert not accepts(tiny, tiny_marks, core_action(IDS), text)


def test_delete_needs_ids(tiny: Model, tiny_marks: Marks) -> None:
    assert "delete" not in core_action([])
    assert accepts(tiny, tiny_marks, core_action([]), "<stop/>")
    assert not accepts(tiny, tiny_marks, core_action([]), '<delete id="e1"/>')
    with pytest.raises(ValueError, match="entry id"):
        core_action(['e1"/><stop/>'])


def test_rule_names_have_no_underscore() -> None:
    rules = re.findall(r"^(\S+) ::=", core_action(IDS), re.MULTILINE)
    assert "body" in rules and not any("_" in rule for rule in rules)


def test_one_of(tiny: Model, tiny_marks: Marks) -> None:
    options = ["yes", 'say "no"\\', "two\nlines", "漢"]
    grammar = one_of(options)
    assert all(accepts(tiny, tiny_marks, grammar, option) for option in options)
    assert not accepts(tiny, tiny_marks, grammar, "yesyes")
    assert not accepts(tiny, tiny_marks, grammar, 'say "no"')
    for wrong in ([], ["a", ""]):
        with pytest.raises(ValueError):
            one_of(wrong)


@pytest.mark.parametrize(
    ("begun", "rest"),
    [
        ("<reasoning>a ", "</reasoning>"),
        ("<reasoning>a]]", "</reasoning>"),
        ("<reasoning>a<", "/reasoning>"),
        ("<reasoning>a</", "reasoning>"),
        ("<reasoning>a</reasoning", ">"),
        ("<reasoning>a&", "amp;</reasoning>"),
        ("<reasoning>a&l", "t;</reasoning>"),
        ("<reasoning>a&gt", ";</reasoning>"),
        ("<reasoning>a&amp;", "</reasoning>"),
        ("<repeat><![CDATA[a < b", "]]></repeat>"),
        ("<repeat><![CDATA[</repea", "]]></repeat>"),
        ("<repeat><![CDATA[a]", "]]></repeat>"),
        ("<repeat><![CDATA[a]]", "]]></repeat>"),
        ("<repeat><![CDATA[a]]>", "</repeat>"),
        ("<repeat><![CDATA[a]]></rep", "eat>"),
        ('<delete id="e1', '"/>'),
        ('<delete id="e12"', "/>"),
        ("<read_stdin", "/>"),
        ("<stop/>", ""),
    ],
)
def test_closes(begun: str, rest: str) -> None:
    assert close_action(begun, IDS) == rest
    etree.fromstring(begun + rest)


def test_closes_only_actions() -> None:
    for text in ("once upon a time", "<shout>x", "<reasoning><b>x", "<reasoning>\x00"):
        with pytest.raises(ValueError, match="not the beginning"):
            close_action(text, IDS)


def test_whatever_is_sampled_is_one_action(tiny: Model, tiny_marks: Marks) -> None:
    """Random logits, with a liking for the characters that markup is made of."""
    grammar = core_action(IDS)
    eager = [t for c in "]]]>>><&;/![" for t in tiny.tokenize(c, special=False)]
    whole, cut, seen = 0, 0, set()
    for seed in range(400):
        draw = np.random.default_rng(seed)
        budget = random.Random(seed).randrange(MIN_TOKENS, 120)
        sampler = Sampler(tiny, tiny_marks, grammar, 1.5, seed)
        text = ""
        for _ in range(budget):
            logits = draw.normal(size=tiny.n_vocab).astype(np.float32)
            logits[eager] += 4.0 * draw.random()
            picked = sampler.pick(logits)
            assert picked is not None  # a grammar that is whole allows the end only: see below
            text += picked[1]
            if sampler.may_end():
                whole += 1
                assert sampler.pick(logits) is None
                assert close_action(text, IDS) == ""
                break
        else:
            cut += 1
            text += close_action(text, IDS)
        sampler.close()
        root = etree.fromstring(text)
        seen.add(root.tag)
        assert len(root) == 0 and root.tag in ACTIONS
        assert root.tag not in BODIED or root.text.strip(" \t\n"), text
        assert "\ufffd" not in text
    assert seen == ACTIONS and whole > 50 and cut > 50, (whole, cut, seen)
