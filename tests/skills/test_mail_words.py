"""Which mail is meant and what a reply says, read from the words alone."""

from __future__ import annotations

from datetime import date
from time import monotonic
from typing import Any

import pytest

from sia import wording
from sia.mailwords import MailWords, answer, read

TODAY = date(2026, 11, 30)  # a Monday


@pytest.mark.parametrize(
    ("request_", "wanted"),
    [
        ("read my new mail", {"unread": True, "many": True}),
        ("read the last mail from Anna", {"sender": "Anna", "newest": True}),
        ("read me the e-mail from my boss about the contract",
         {"sender": "my boss", "words": ("contract",)}),
        ("find mails about the summer party from last week",
         {"words": ("summer", "party"), "since": date(2026, 11, 23), "until": TODAY, "many": True}),
        ("search my mail for the invoice from Telekom",
         {"sender": "Telekom", "words": ("invoice",)}),
        ('search for "late fee"', {"words": ("late fee",)}),
        ("did Anna write me today?",
         {"sender": "Anna", "since": TODAY, "until": date(2026, 12, 1)}),
        ("summarise Anna's last mail", {"sender": "Anna", "newest": True}),
        ("reply to Anna", {"sender": "Anna"}),
        ("reply to the mail from lena@example.org", {"sender": "lena@example.org"}),
        ("answer the last mail", {"newest": True}),
        ("any unread messages since yesterday?",
         {"unread": True, "many": True, "since": date(2026, 11, 29)}),
        ("what is new in my inbox", {"unread": True, "many": True}),
        ("read it", {}),
        ("", {}),
    ],
)  # fmt: skip
def test_what_is_meant(request_: str, wanted: dict[str, Any]) -> None:
    assert read(request_, TODAY) == MailWords(**wanted)


@pytest.mark.parametrize(
    ("request_", "head", "body"),
    [
        ("reply to Anna that I will come", "reply to Anna", "I will come."),
        ("please reply to the last mail from Anna saying yes, gladly",
         "reply to the last mail from Anna", "Yes, gladly."),
        ("answer Lena's mail: not before Monday", "answer Lena's mail", "Not before Monday."),
        ('reply to the mail about dinner with "See you at 8!"',
         "reply to the mail about dinner", "See you at 8!"),
        ("reply to Anna", "reply to Anna", ""),
        ("antworte Anna, dass ich komme", "antworte Anna", "Ich komme."),
    ],
)  # fmt: skip
def test_what_the_answer_says(request_: str, head: str, body: str) -> None:
    assert answer(request_) == (head, body, "")


def test_he_or_she_is_no_text_yet() -> None:
    assert answer("reply to Anna that she can come") == ("reply to Anna", "", "She can come.")


def test_any_length_is_read_at_once() -> None:
    assert len(read("find the mail about " + "very " * 20_000, TODAY).words) == 6
    answer("reply to Anna that " + "x " * 20_000)


@pytest.mark.parametrize("span", ["99999999 days", "9999999 years", "99999999999999 months"])
def test_a_time_that_no_calendar_has(span: str) -> None:
    found = read(f"mails from the last {span}", TODAY)
    assert (found.since, found.until) == (None, None)


@pytest.mark.parametrize("text", ["send " + ", " * 3000, "reply to Anna " + ", : " * 1500])
def test_a_long_run_of_commas_takes_no_minutes(text: str) -> None:
    begun = monotonic()
    wording.read(text)
    assert answer(text)[0].startswith(text[:5])
    assert monotonic() - begun < 20  # it took more than an hour
