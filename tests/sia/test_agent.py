"""The loop from input to record: real skills and workers, a scripted decider and generator."""

import threading

from semif.errors import DecisionError
from sia.entries import ErrorEntry, InputEntry, Note, Script, Step, WriteStdout
from sia.events import Admitted, Asked, Ended, Notice, Said, Traced, TurnEnded
from sia.prompt import prompt

ECHO = """
def act(ctx):
    ctx.say(f"did {ctx.request}")
"""
TWO = """
def first(ctx):
    ctx.state["word"] = ctx.choose("Which?", [("a", "one"), ("b", "two")])

def second(ctx):
    ctx.say(f"took {ctx.state['word']}")

def verify(ctx):
    return True
"""
ASK = """
def act(ctx):
    ctx.say("Let me see.")
    ctx.say(f"You said {ctx.ask('How many?')}.")
"""
PICK = """
def act(ctx):
    ctx.say(f"It is {ctx.ask('Which colour?', ['red', 'green', 'blue'])}.")
"""
CONFIRM = """
def act(ctx):
    ctx.say("sent" if ctx.confirm("Send it?") else "not sent")
"""


def test_a_request_is_worked_from_start_to_end(make, skill) -> None:
    skill("two", TWO, actions="first second")
    rig = make()
    assert rig.all("two please") == 0
    assert rig.said == ["took a"]
    assert rig.ended == [("r1", "done")] and rig.runs() == {"r1": "done"}
    found = rig.iterations()
    assert [iteration.n for iteration in found] == [1, 2, 3]
    assert len({iteration.session for iteration in found}) == 1
    # navigation, then an action a turn
    assert [iteration.process.skill for iteration in found] == ["", "demo/two", "demo/two"]
    assert [iteration.process.step for iteration in found] == [1, 1, 2]
    assert found[0].process.text == "two please" and found[0].run == "r1"
    assert found[-1].response.text == "<write_stdout>took a</write_stdout>"
    assert found[-1].response.by == "skill"
    entries = found[-1].entries
    assert [entry.command.text for entry in entries if isinstance(entry, Script)] == [
        "ls tasks", "cat user.md"
    ]  # fmt: skip
    assert all(script.exit_code == 0 for script in entries if isinstance(script, Script))
    (given,) = [entry for entry in entries if isinstance(entry, InputEntry)]
    assert (given.source, given.run, given.text.text) == ("typed", "r1", "two please")
    assert [entry.action for entry in entries if isinstance(entry, Step)] == ["", "first"]
    phases = [decision.phase for iteration in found for decision in iteration.decisions]
    way = ["navigate_category", "navigate_skill", "read_next"]
    assert phases == ["contains_request", "urgency", *way]
    rows = rig.rows()
    assert [row["phase"] for row in rows] == phases
    assert {row["run"] for row in rows} == {"r1"}
    assert len({row["id"] for row in rows}) == 5 and all(row["prompt_sha256"] for row in rows)
    # Verified by the skill: the way that led to it, and nothing else.
    taken = {row["id"]: row["selected"] for row in rows if row["phase"] in way[:2]}
    labels = rig.labels()
    assert {label["row"]: label["option"] for label in labels} == taken
    assert {(label["polarity"], label["source"], label["weight"]) for label in labels} == {
        ("is", "verified", 1.0)
    }


def test_a_low_token_mass_is_traced_once(make, skill) -> None:
    skill("echo", ECHO)
    rig = make()
    rig.decider.mass = 0.3
    assert rig.all("echo one", "echo two") == 0
    (traced,) = [event for event in rig.events if isinstance(event, Traced)]
    assert "allowed_token_mass 0.300 is below 0.5: prompt scripted" in traced.text
    assert not [event for event in rig.events if isinstance(event, Notice)]


def test_what_comes_in_meanwhile_is_not_labelled_by_the_outcome(make, skill, home) -> None:
    gate = home / "gate"
    skill("two", f"""
def first(ctx):
    import time, pathlib
    while not pathlib.Path({str(gate)!r}).exists():
        time.sleep(0.01)

def second(ctx):
    pass

def verify(ctx):
    return True
""", actions="first second")  # fmt: skip
    rig = make().start()
    rig.say("two")
    rig.wait(TurnEnded, n=1)
    rig.say("thanks a lot")
    rig.wait(Admitted, text="thanks a lot", action="ignore")
    gate.touch()
    assert rig.end() == 0
    phases = {row["id"]: row["phase"] for row in rig.rows()}
    assert sorted(phases[label["row"]] for label in rig.labels()) == [
        "navigate_category", "navigate_skill"
    ]  # fmt: skip


def test_the_prompt_of_each_file_is_the_one_that_was_read(make, home) -> None:
    """Also where exact bytes lie beside the file: replay reads what the generator read."""
    replies = [
        "<single_shot><![CDATA[printf 'a\\377b\\000'; echo token=abcdef >&2]]></single_shot>",
        "<reasoning>odd</reasoning>",
        "<write_stdout>done</write_stdout>",
    ]
    rig = make(replies)
    assert rig.all("free: look") == 0
    found = [iteration for iteration in rig.iterations() if iteration.generator]
    assert len(found) == len(rig.generator.calls) == 3
    for iteration, call in zip(found, rig.generator.calls, strict=True):
        again = prompt(iteration)
        assert again.parts[:2] == call.parts
        assert again.sha256 == iteration.prompt_sha256
        assert again.system_sha256 == iteration.system_sha256
        # What holds a secret is kept without it, and nobody is to learn that.
        assert iteration.response.lossy == ("token" in iteration.response.text)
        assert again.trained == (False, False, not iteration.response.lossy)
    (script,) = [e for e in found[-1].entries if isinstance(e, Script) and e.run]
    folder = home / "contexts" / found[-1].session
    assert script.stdout.text == "a�b�" and script.stdout.lossy and script.stdout.bytes == 4
    assert (folder / script.stdout.file).read_bytes() == b"a\xffb\0"
    assert script.stderr.text == "token=[redacted]\n"
    assert (folder / script.stderr.file).read_bytes() == b"token=abcdef\n"
    assert (folder / script.stdout.file).stat().st_mode & 0o777 == 0o600
    # It keeps its place beside the iteration that first showed it, so the prompt stays the same.
    assert [e for e in found[1].entries if e.id == script.id] == [script]


def test_an_input_keeps_its_secret_and_its_odd_bytes_in_the_sidecar(make, skill, home) -> None:
    skill("echo", ECHO)
    rig = make()
    assert rig.all("echo password: hunter2", "echo a\x00b") == 0
    last = rig.iterations()[-1]
    first, second = (e.text for e in last.entries if isinstance(e, InputEntry))
    assert (first.text, first.lossy, first.bytes) == ("echo password: [redacted]", True, 22)
    assert (second.text, second.lossy, second.bytes) == ("echo a�b", True, 8)
    folder = home / "contexts" / last.session
    assert (folder / first.file).read_text() == "echo password: hunter2"
    assert (folder / second.file).read_bytes() == b"echo a\0b"
    for place in (home / "contexts").rglob("*.xml"):
        assert "hunter2" not in place.read_text()
    assert "hunter2" not in (home / ".sia/decisions.jsonl").read_text()


def test_what_asks_for_nothing_leaves_an_iteration_and_no_more(make) -> None:
    rig = make()
    assert rig.all("thanks, that was great") == 0
    assert rig.admitted == [("thanks, that was great", "ignore")]
    assert rig.said == [] and rig.runs() == {}
    (iteration,) = rig.iterations()
    assert iteration.process is None and iteration.response is None and iteration.run == ""
    assert [d.selected for d in iteration.decisions if d.phase == "contains_request"] == ["no"]
    (given,) = [e for e in iteration.entries if isinstance(e, InputEntry)]
    assert given.text.text == "thanks, that was great"
    assert {decision.source for decision in iteration.decisions} == {given.id}


def test_a_question_suspends_until_it_is_answered(make, skill) -> None:
    skill("ask", ASK)
    skill("echo", ECHO)
    rig = make().start()
    run = rig.say("ask me")
    assert rig.wait(Asked) == Asked(run, "How many?", ())
    assert rig.said == ["Let me see."]
    rig.say("echo meanwhile")  # is no answer, and is worked
    rig.wait(Said, text="did echo meanwhile")
    answer = rig.say("re seven")
    assert rig.wait(Ended, run=run).status == "done"
    assert rig.end() == 0
    assert rig.said == ["Let me see.", "did echo meanwhile", "You said re seven."]
    assert rig.asked == ["How many?"]
    heard = rig.wait(Admitted, text="re seven")
    assert (heard.run, heard.action, heard.to) == (answer, "answer", run)
    assert rig.runs() == {run: "done", "r2": "done"}


def test_what_asks_for_nothing_answers_an_open_question(make, skill) -> None:
    skill("ask", ASK)
    rig = make().start()
    rig.say("ask me")
    rig.wait(Asked)
    rig.say("thanks seven")
    rig.wait(Said, text="You said thanks seven.")
    assert rig.end() == 0


def test_options_are_answered_by_word_number_or_beginning(make, skill) -> None:
    skill("pick", PICK)
    for word, colour in (("GREEN.", "green"), ("3", "blue"), ("r", "red")):
        rig = make().start()
        rig.say("pick one")
        assert rig.wait(Asked).options == ("red", "green", "blue")
        calls = len(rig.decider.calls)
        rig.say(word)
        rig.wait(Said, text=f"It is {colour}.")
        assert rig.end() == 0
        assert len(rig.decider.calls) == calls  # no decision was needed


def test_a_confirmation_is_given_in_words_or_in_advance(make, skill) -> None:
    skill("send", CONFIRM)
    for word, said in (("yes", "sent"), ("Ja", "sent"), ("nope", "not sent")):
        rig = make().start()
        rig.say("send it")
        assert rig.wait(Asked).options == ("yes", "no")
        rig.say(word)
        rig.wait(Said, text=said)
        assert rig.end() == 0
    rig = make(yes=True)
    assert rig.all("send it") == 0
    assert (rig.asked, rig.said) == ([], ["sent"])


def test_the_answer_goes_to_the_question_asked_last(make, skill) -> None:
    """Of two runs that ask, the older one may ask later: after it was displaced."""
    skill("slow", """
def act(ctx):
    import time
    time.sleep(0.6 if not ctx.interrupted() else 0)
    ctx.say("slow: " + ctx.ask("slow?", ["red", "green"]))
""")  # fmt: skip
    skill("quick", """
def act(ctx):
    ctx.say("quick: " + ctx.ask("quick?", ["red", "green"]))
""")  # fmt: skip
    rig = make().start()
    rig.say("slow")
    rig.wait(TurnEnded, n=1)
    rig.say("now quick")
    rig.wait(Asked, text="quick?")
    rig.wait(Asked, text="slow?")
    rig.say("green")
    rig.wait(Said, text="slow: green")
    rig.say("red")
    rig.wait(Said, text="quick: red")
    assert rig.end() == 0


def test_nobody_there_to_answer_is_a_failure_in_words(make, skill) -> None:
    skill("ask", ASK)
    rig = make()
    assert rig.all("ask me") == 1
    assert rig.said == ["Let me see.", "nobody is there to answer: How many?"]
    assert rig.runs() == {"r1": "failed"}


def test_a_line_that_follows_answers_a_piped_question(make, skill) -> None:
    skill("ask", ASK)
    skill("echo", ECHO)
    rig = make()
    assert rig.all("ask me", "re seven", "echo last", source="piped") == 0
    assert rig.said == ["Let me see.", "You said re seven.", "did echo last"]


def test_piped_lines_are_worked_in_their_order(make, skill) -> None:
    skill("echo", ECHO)
    rig = make()
    lines = ["echo cold 1", "thanks", "hot echo 2", "echo 3"]
    assert rig.all(*lines, source="piped") == 0
    assert rig.said == [f"did {line}" for line in lines if line != "thanks"]


def test_the_queue_is_worked_by_urgency_and_then_by_arrival(make, skill) -> None:
    skill("echo", ECHO)
    gate = threading.Event()
    rig = make([lambda *_: gate.wait() and "<write_stdout>free</write_stdout>"]).start()
    rig.say("free: block")
    rig.until(lambda: rig.generator.calls)
    for text in ("cold echo 1", "echo 2", "hot echo 3", "echo 4"):
        rig.say(text)
        rig.wait(Admitted, text=text, action="queue")
    gate.set()
    assert rig.end() == 0
    assert rig.said == ["free", "did hot echo 3", "did echo 2", "did echo 4", "did cold echo 1"]
    shown = next(iteration for iteration in rig.iterations() if iteration.run == "r4")
    assert [item.text for item in shown.queue] == ["echo 2", "echo 4", "cold echo 1"]
    assert shown.queue_depth == 3
    assert [item.urgency for item in shown.queue] == [0.41, 0.41, 0.14]


def test_a_full_queue_says_so_and_still_takes_what_interrupts(make, skill, home) -> None:
    (home / "sia.toml").write_text('[queue]\nlimit = 1\n[scripts]\npolicy = "allow"\n')
    skill("echo", ECHO)
    rig = make(["<single_shot>sleep 30</single_shot>", "<write_stdout>over</write_stdout>"]).start()
    rig.say("free")
    rig.wait(TurnEnded, n=2)
    rig.say("echo 1")
    rig.wait(Admitted, text="echo 1", action="queue")
    rig.say("echo 2")
    rig.wait(Admitted, text="echo 2", action="reject")
    notice = rig.wait(Notice, level="error")
    assert notice.text == "the queue is full (1 waiting); not taken: echo 2"
    rig.say("now echo 3")
    rig.wait(Said, text="did now echo 3")
    rig.until(lambda: rig.agent.loop.current and rig.agent.loop.current.id == "r1")
    rig.say("echo 4", source="timer")  # nobody could send it again
    rig.wait(Admitted, text="echo 4", action="queue")
    rig.stop()
    assert "did echo 2" not in rig.said
    left = {id: status for id, status in rig.runs().items() if id != "r1"}
    assert left == {"r2": "waiting", "r4": "done", "r5": "waiting"}


def test_an_input_too_long_is_refused_in_one_line(make) -> None:
    rig = make()
    assert rig.all("x" * 100_001, "thanks") == 1
    (notice,) = [event for event in rig.events if isinstance(event, Notice)]
    assert "100,001 characters are more than 100,000; put it into a file" in notice.text
    assert notice.level == "error" and "\n" not in notice.text
    assert rig.admitted == [("x" * 100_001, "reject"), ("thanks", "ignore")]
    assert rig.runs() == {}


def test_a_decision_that_cannot_be_made_ends_the_request_not_the_agent(make, skill) -> None:
    skill("echo", ECHO)

    def decide(decision):
        text = decision.state.get("input", "")
        if "huge" in text and decision.phase == "navigate_category":
            raise DecisionError(decision.id, "state", "9,000 tokens are too long")
        if "vast" in text:
            raise DecisionError(decision.id, "state", "9,999 tokens are too long")
        return "demo" if decision.phase == "navigate_category" else {
            "navigate_skill": "echo", "contains_request": "yes", "urgency": "low"
        }.get(decision.phase, decision.options[0].id)  # fmt: skip

    rig = make(decide=decide)
    assert rig.all("huge", "vast", "small") == 1
    assert "did small" in rig.said and any("9,000 tokens" in text for text in rig.said)
    assert ("vast", "reject") in rig.admitted
    assert rig.runs() == {"r1": "failed", "r3": "done"}


# the generator's turns


def test_a_fault_of_the_model_is_shown_to_it_and_mended(make) -> None:
    replies = ["<single_shot>a && b</single_shot>", "Sure!", "<write_stdout>mended</write_stdout>"]
    rig = make(replies)
    assert rig.all("free: try") == 0
    assert rig.said == ["mended"]
    errors = [entry for entry in rig.entries() if isinstance(entry, ErrorEntry)]
    assert [(error.line, error.column) for error in errors] == [(1, 17), (1, 1)]
    assert "belongs into <![CDATA[" in errors[0].text.text
    seen = rig.generator.calls[1].parts[1].text
    assert '<error id="e5" line="1" column="17">' in seen
    assert rig.iterations()[1].response.text == replies[0]


def test_the_cut_off_is_stated(make, home) -> None:
    rig = make(["<reasoning>hm</reasoning>"] * 20)
    assert rig.all("free: think") == 1
    assert rig.said == ["I stopped after 12 turns without coming to an end: free: think"]
    assert len(rig.generator.calls) == 12 and rig.ended == [("r1", "failed")]


def test_without_a_proven_generator_nothing_is_tried(make) -> None:
    rig = make(["<stop/>"], proven=frozenset())
    assert rig.all("free: think") == 1
    assert rig.generator.calls == [] and "I have no skill for that yet" in rig.said[0]


def test_a_script_is_waited_for_and_a_background_one_moves_to_its_place(make) -> None:
    replies = [
        "<background>sleep 0.3; echo late</background>",
        "<single_shot>sleep 1; echo once</single_shot>",
        "<reasoning>both are over</reasoning>",
        "<write_stdout>ok</write_stdout>",
    ]
    rig = make(replies)
    assert rig.all("free: run") == 0
    read = rig.generator.calls[2].parts[1].text
    assert "<stdout><![CDATA[once\n]]></stdout>" in read
    scripts = [e for e in rig.entries() if isinstance(e, Script) and e.run == "r1"]
    assert [(s.mode, s.status, s.exit_code, s.stdout.text) for s in scripts] == [
        ("background", "done", 0, "late\n"),
        ("single_shot", "done", 0, "once\n"),
    ]


def test_a_repeat_runs_anew_each_turn_also_while_it_is_slow(make, home) -> None:
    replies = [
        "<repeat><![CDATA[sleep 0.2; date +%N; echo password=secret1 >> log]]></repeat>",
        "<reasoning>a</reasoning>",
        "<reasoning>b</reasoning>",
        "<write_stdout>ok</write_stdout>",
    ]
    rig = make(replies)
    assert rig.all("free: watch") == 0
    shown = []
    for iteration in rig.iterations()[2:]:
        (repeat,) = [e for e in iteration.entries if e.id == "e5"]
        assert repeat.command.text == "sleep 0.2; date +%N; echo password=[redacted] >> log"
        shown.append(repeat.stdout.text)
    assert len(set(shown)) == 3
    # The command that runs is the one that was written, secret and all.
    assert (home / "work/log").read_text() == "password=secret1\n" * 3


def test_what_the_policy_denies_is_denied_every_turn(make, home) -> None:
    (home / "sia.toml").write_text('[scripts]\npolicy = "deny"\n')
    replies = [
        "<repeat>touch seen</repeat>",
        "<single_shot>touch seen</single_shot>",
        "<reasoning>a</reasoning>",
        "<write_stdout>ok</write_stdout>",
    ]
    rig = make(replies)
    assert rig.all("free: touch") == 0
    assert not (home / "work/seen").exists()
    scripts = [e for e in rig.entries() if isinstance(e, Script) and e.run]
    assert [script.status for script in scripts] == ["refused", "refused"]
    assert all("deny" in script.note for script in scripts)


def test_a_repeat_from_before_a_restart_meets_the_policy_of_now(make, home) -> None:
    rig = make(["<repeat><![CDATA[echo x >> log]]></repeat>", "<stop/>"])
    rig.say("free: watch")
    assert rig.start().joined() == 75
    before = (home / "work/log").read_text()
    (home / "sia.toml").write_text('[scripts]\npolicy = "deny"\n')
    again = make(["<reasoning>a</reasoning>", "<write_stdout>ok</write_stdout>"]).start()
    assert again.end() == 0
    assert (home / "work/log").read_text() == before
    statuses = [e.status for e in again.entries() if isinstance(e, Script)]
    assert statuses == ["done", "done", "refused"]  # the session's own go on


def test_unread_input_is_read_on_request(make, skill) -> None:
    def wait(_parts, _cancel):
        rig.say("thanks in between")
        rig.wait(Admitted, text="thanks in between")
        return "<reasoning>x</reasoning>"

    rig = make([wait, "<read_stdin/>", "<read_stdin/>", "<write_stdout>ok</write_stdout>"]).start()
    run = rig.say("free: listen")
    assert rig.wait(Asked).text == "More input is wanted for: free: listen"
    assert rig.wait(Admitted, text="thanks in between").to == run
    third = rig.generator.calls[1].parts[1].text
    assert 'stdin="1"' in third
    rig.say("re second")
    rig.wait(Said, text="ok")
    assert rig.end() == 0
    read = [e.text.text for e in rig.entries() if type(e).__name__ == "ReadStdin"]
    assert read[0] == "thanks in between"


def test_the_context_is_told_of_and_relieved_in_time(make, home) -> None:
    (home / "sia.toml").write_text(
        '[scripts]\npolicy = "allow"\nshown_bytes = 4000\n[generator]\ncontext = 4000\n'
        "max_tokens = 500\n"
    )
    shot = "<single_shot>head -c 3000 /dev/zero | tr '\\0' {}</single_shot>"
    replies = [shot.format(letter) for letter in "abcdef"] + ["<write_stdout>ok</write_stdout>"]
    rig = make(replies)
    assert rig.all("free: fill") == 0
    found = rig.iterations()
    notes = [e for i in found for e in i.entries if isinstance(e, Note)]
    assert any("percent full" in note.text.text for note in notes)
    assert max(iteration.figures.context for iteration in found) < 96
    moved = [e for e in found[-1].entries if isinstance(e, Script) and "[moved" in e.stdout.text]
    assert moved
    for script in moved:
        file = script.stdout.text.removeprefix("[moved to ").removesuffix("]")
        text = (home / file).read_text()
        assert any(letter * 3000 in text for letter in "abcdef")


def test_words_for_the_person_are_entries_too(make, skill) -> None:
    skill("echo", ECHO)
    rig = make().start()
    rig.say("echo 1")
    rig.wait(Ended)
    rig.say("thanks")
    assert rig.end() == 0
    assert [e.text.text for e in rig.entries() if isinstance(e, WriteStdout)] == ["did echo 1"]
