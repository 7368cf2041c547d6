"""SKILL.md: what is read, and the one line said about what is refused."""

from pathlib import Path

import pytest

from sia.skills.manifest import Budget, MalformedSkill, parse_category, parse_skill

BUDGET = "'seconds=60 tokens=2000 actions=20 money=0.05'"
HEAD = "---\nname: one\ndescription: Test.\nmetadata:\n"
ACT = "def act(ctx): pass\n"


@pytest.fixture
def made(tmp_path: Path):
    def make(text: str | bytes, code: str | bytes | None = None) -> Path:
        folder = tmp_path / "demo" / "one"
        folder.mkdir(parents=True)
        data = text if isinstance(text, bytes) else text.encode()
        (folder / "SKILL.md").write_bytes(data)
        if code is not None:
            (folder / "skill.py").write_bytes(code if isinstance(code, bytes) else code.encode())
        return folder

    return make


def test_everything_that_can_be_said(made):
    folder = made(
        """---
name: one
description: >
  Sends a
  test.
license: MIT
allowed-tools: Bash Read
metadata:
  author: somebody
  sia-inputs: to, body
  sia-actions: "write send"
  sia-budget: seconds=1.5 tokens=300 actions=7 money=0.000001
  sia-predict: send
  sia-stakes: high
  sia-interrupted-by: typed, event
  sia-interrupts: demo
  sia-effects: outside
  sia-requires: config:email.host binary:git socket:$XDG_RUNTIME_DIR/bus
  sia-degrade: "Send only the first line: {request}"
  sia-decision-log: "off"
---

# One

Write, then send.
""",
        "def observe(ctx): ...\ndef write(ctx): ...\ndef send(ctx, more=1): ...\n",
    )
    skill = parse_skill(folder)
    assert (skill.id, skill.name, skill.category) == ("demo/one", "one", "demo")
    assert skill.description == "Sends a test."
    assert skill.body == "# One\n\nWrite, then send."
    assert skill.inputs == ("to", "body") and skill.actions == ("write", "send")
    assert skill.budget == Budget(1.5, 300, 7, 0.000001) and skill.predict == "send"
    assert (skill.stakes, skill.effects, skill.decision_log) == ("high", "outside", False)
    assert skill.interrupted_by == ("typed", "event") and skill.brakes
    assert skill.requires == ("config:email.host", "binary:git", "socket:$XDG_RUNTIME_DIR/bus")
    assert skill.degrade == "Send only the first line: {request}"
    assert (skill.has_code, skill.has_observe, skill.has_verify) == (True, True, False)
    assert skill.folder == folder


def test_what_is_not_said_has_a_default(made):
    skill = parse_skill(made("\ufeff---\r\nname: one\r\ndescription: Test.\r\n---\r\nDo\r\nit."))
    assert skill.body == "Do\nit." and skill.actions == () and not skill.has_code
    assert skill.budget == Budget(60.0, 2000) and skill.effects == "local"
    assert skill.stakes == "low" and skill.decision_log and skill.requires == ()
    assert skill.interrupted_by == () and not skill.brakes
    assert skill.predict == "" and not skill.careful


def test_success_is_predicted_before_the_first_action_unless_told(made):
    code = made(HEAD + '  sia-actions: "a b"\n---\n', "def a(ctx): ...\ndef b(ctx): ...\n")
    assert parse_skill(code).predict == "a"


def test_high_stakes_yield_to_what_is_typed_alone_unless_it_says_otherwise(made):
    assert parse_skill(made(HEAD + "  sia-stakes: high\n---\n")).interrupted_by == ("typed",)


@pytest.mark.parametrize(
    ("stakes", "effects", "careful"),
    [("low", "local", False), ("high", "none", True), ("low", "outside", True)],
)
def test_what_cannot_be_made_good_again_is_done_with_care(made, stakes, effects, careful):
    skill = parse_skill(made(HEAD + f"  sia-stakes: {stakes}\n  sia-effects: {effects}\n---\n"))
    assert skill.careful is careful


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (
            "no front matter",
            None,
            "SKILL.md:1: must begin with front matter between two lines '---'",
        ),
        ("", None, "SKILL.md:1: must begin with front matter between two lines '---'"),
        (
            "---\nname: one\n",
            None,
            "SKILL.md:1: must begin with front matter between two lines '---'",
        ),
        (b"---\nname: one\n---\n\xff", None, "SKILL.md:4: is not UTF-8"),
        ("---\n- a\n---\n", None, "SKILL.md:2: front matter must be 'key: value' lines"),
        (
            "---\nname: one\ndescription: a: b\n---\n",
            None,
            "SKILL.md:3: front matter is not YAML: mapping values are not allowed here",
        ),
        (
            "---\nname: one\nwhen: 2026-13-45\n---\n",
            None,
            "SKILL.md: front matter is not YAML: month must be in 1..12",
        ),
        ("---\ndescription: Test.\n---\n", None, "SKILL.md: name is missing or not a text"),
        ("---\nname: 7\ndescription: T\n---\n", None, "SKILL.md: name is missing or not a text"),
        ("---\nname: one\n---\n", None, "SKILL.md: description is missing or not a text"),
        (
            "---\nname: One\ndescription: T\n---\n",
            None,
            "SKILL.md: name 'One' must be a-z, 0-9 and single hyphens, up to 64",
        ),
        (
            "---\nname: o--ne\ndescription: T\n---\n",
            None,
            "SKILL.md: name 'o--ne' must be a-z, 0-9 and single hyphens, up to 64",
        ),
        (
            "---\nname: two\ndescription: T\n---\n",
            None,
            "SKILL.md: name 'two' must equal its folder 'one'",
        ),
        (
            f"---\nname: one\ndescription: {'x' * 1025}\n---\n",
            None,
            "SKILL.md: description is over 1024 characters",
        ),
        (
            HEAD + "  version: 1.0\n---\n",
            None,
            'SKILL.md: metadata version must be a text: write version: "1.0"',
        ),
        (
            "---\nname: one\ndescription: T\nmetadata: x\n---\n",
            None,
            "SKILL.md: metadata must be 'key: value' lines",
        ),
        (
            "---\nname: one\ndescription: T\nsia-stakes: high\n---\n",
            None,
            "SKILL.md: sia-stakes belongs under metadata",
        ),
        (
            HEAD + "  sia-step: x\n---\n",
            None,
            "SKILL.md: unknown sia-step; known are sia-inputs, sia-actions, sia-predict, "
            "sia-interrupted-by, sia-interrupts, sia-requires, sia-degrade, sia-budget, "
            "sia-stakes, sia-effects, sia-meanwhile, sia-decision-log",
        ),
        (
            HEAD + "  sia-stakes: medium\n---\n",
            None,
            "SKILL.md: sia-stakes is 'medium', must be low | high",
        ),
        (
            HEAD + "  sia-effects: ''\n---\n",
            None,
            "SKILL.md: sia-effects is '', must be none | local | outside",
        ),
        (
            HEAD + "  sia-decision-log: on\n---\n",
            None,
            'SKILL.md: metadata sia-decision-log must be a text: write sia-decision-log: "True"',
        ),
        (
            HEAD + "  sia-budget: 60 s\n---\n",
            None,
            f"SKILL.md: sia-budget: '60' is not like {BUDGET}",
        ),
        (
            HEAD + "  sia-budget: seconds=0\n---\n",
            None,
            f"SKILL.md: sia-budget: 'seconds=0' is not like {BUDGET}",
        ),
        (
            HEAD + "  sia-budget: actions=1.5\n---\n",
            None,
            f"SKILL.md: sia-budget: 'actions=1.5' is not like {BUDGET}",
        ),
        (
            HEAD + "  sia-actions: act\n  sia-predict: send\n---\n",
            "def act(ctx): ...\n",
            "SKILL.md: sia-predict: 'send' is none of sia-actions",
        ),
        (
            HEAD + "  sia-interrupted-by: voice\n---\n",
            None,
            "SKILL.md: sia-interrupted-by: 'voice' is no source; known: typed, piped, timer, "
            "skill, event, concern",
        ),
        (
            HEAD + "  sia-interrupts: driving\n---\n",
            None,
            "SKILL.md: sia-interrupts: 'driving' is not its own category, 'demo'",
        ),
        (
            HEAD + "  sia-requires: email.host\n---\n",
            None,
            "SKILL.md: sia-requires: 'email.host' is not config:SECTION.KEY, binary:NAME or "
            "socket:PATH",
        ),
        (
            HEAD + "  sia-actions: act\n---\n",
            None,
            "SKILL.md: sia-actions needs a skill.py, there is none",
        ),
        (
            "---\nname: one\ndescription: T\n---\n",
            ACT,
            "SKILL.md: there is a skill.py: name its functions in sia-actions",
        ),
        (
            HEAD + "  sia-actions: act save\n---\n",
            ACT,
            "skill.py: has no function 'save', which sia-actions names",
        ),
        (
            HEAD + "  sia-actions: act\n---\n",
            "from os import walk as act\n",
            "skill.py: has no function 'act', which sia-actions names",
        ),
        (
            HEAD + "  sia-actions: act act\n---\n",
            ACT,
            "SKILL.md: sia-actions: 'act' may not stand there (again)",
        ),
        (
            HEAD + "  sia-actions: verify\n---\n",
            "def verify(ctx): pass\n",
            "SKILL.md: sia-actions: 'verify' may not stand there (again)",
        ),
        (
            HEAD + "  sia-actions: act\n---\n",
            "\ndef act(): pass\n",
            "skill.py:2: act must take one argument, ctx",
        ),
        (
            HEAD + "  sia-actions: act\n---\n",
            "def act(ctx, *, key): pass\n",
            "skill.py:1: act must take one argument, ctx",
        ),
        (
            HEAD + "  sia-actions: act\n---\n",
            "async def act(ctx): pass\n",
            "skill.py:1: act must be a plain def",
        ),
        (
            HEAD + "  sia-actions: act\n---\n",
            ACT + "def verify(ctx, run): pass\n",
            "skill.py:2: verify must take one argument, ctx",
        ),
        (
            HEAD + "  sia-actions: act\n---\n",
            "def act(ctx):\n  return (\n",
            "skill.py:2: is not Python: '(' was never closed",
        ),
        (
            HEAD + "  sia-actions: act\n---\n",
            b"x = '\xff'\n",
            "skill.py:1: is not UTF-8",
        ),
        (
            HEAD + "  sia-actions: act\n---\n",
            "",
            "skill.py: has no function 'act', which sia-actions names",
        ),
    ],
)
def test_what_is_refused(made, text, code, message):
    folder = made(text, code)
    with pytest.raises(MalformedSkill) as error:
        parse_skill(folder)
    assert str(error.value) == f"{folder}/{message}"
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("code", ["(" * 5000, "x = 1\0", "-" * 200_000 + "1"])
def test_python_that_hurts_the_parser_is_refused(made, code):
    with pytest.raises(MalformedSkill, match="skill.py.*is not Python"):
        parse_skill(made(HEAD + "  sia-actions: act\n---\n", code))


def test_files_that_cannot_be_read(made, tmp_path):
    folder = made(HEAD + f"  sia-degrade: {'x' * 1_000_000}\n---\n")
    with pytest.raises(MalformedSkill, match=r"SKILL.md: is over 1,000,000 bytes"):
        parse_skill(folder)
    with pytest.raises(MalformedSkill, match=r"SKILL.md: cannot be read: No such file"):
        parse_skill(tmp_path / "demo" / "none")


def test_nothing_of_a_skill_is_run_by_looking_at_it(made, tmp_path):
    mark = tmp_path / "ran"
    parse_skill(made(HEAD + "  sia-actions: act\n---\n", f"open({str(mark)!r}, 'w')\n" + ACT))
    assert not mark.exists()


def test_a_category(tmp_path):
    folder = tmp_path / "email"
    folder.mkdir()
    path = folder / "CATEGORY.md"
    path.write_text("---\nname: email\ndescription: 'E-mail: read, write.'\n---\n")
    assert parse_category(folder) == ("email", "E-mail: read, write.")
    path.write_text("---\nname: mail\ndescription: x\n---\n")
    with pytest.raises(MalformedSkill, match="name 'mail' must equal its folder 'email'"):
        parse_category(folder)
