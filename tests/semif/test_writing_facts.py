"""The check of a written text: what it lost or invented, its language, and how long it takes."""

from __future__ import annotations

import time

import pytest

from semif.writing.facts import broken, fault, kept
from semif.writing.language import language, same_language
from semif.writing.tasks import ends, shown

LATE = {"to": "Ada Lindt", "request": "tell Ada I'll be 20 minutes late, bus broke down"}
JUDGED = {
    "request": "back up the photos",
    "skill": "files/backup: copies a folder",
    "before": "files: 2310",
    "after": "files: 874",
    "output": "No space left on device\nexit 11",
}
VERDICT = {"success": False, "cause": "environment", "summary": "Only 874 of 2310 were copied."}


@pytest.mark.parametrize(
    ("given", "text", "lost", "invented"),
    [
        (LATE, "Hi Ada, I'll be 20 minutes late, the bus broke down.", "", ""),
        (LATE, "Hi Ada, I'll be 30 minutes late.", "20", "30"),
        (LATE, "Hi Bob, I'll be 20 minutes late.", "", "Bob"),
        (LATE, "Hi Ada, I'll be 20 minutes late, Friday is better.", "", "friday"),
        (LATE, "Hi Ada, I'll be 20 minutes late, three buses broke down.", "", "three"),
        ({"to": "Bo", "request": "tell bo 3 pm fri"}, "Hi Bo, 3 pm on Friday, all three.", "", ""),
        ({"to": "Bo", "request": "come tmrw b4 9"}, "Hi Bo, come tomorrow before 9.", "", ""),
        ({"to": "Bo", "request": "pay 1,340 euros"}, "Hi Bo, please pay 1340 euros.", "", ""),
        ({"to": "Bo", "request": "from 10-12"}, "Hi Bo, from 10 to 12.", "", ""),
        ({"to": "Bo", "request": "see a.io/x, 2"}, "Hi Bo, see b.io, 2.", "a.io", "b.io"),
        (
            {"to": "Bo", "request": "write to eve@a.org"},
            "Hi Bo, write to eve@b.org.",
            "eve@a.org",
            "eve@b.org",
        ),
        (
            {"to": "Herr Brandl", "request": "sag ihm, die Rechnung 4471 ist bezahlt"},
            "Guten Tag Herr Brandl, die Rechnung 4471 ist bezahlt.",
            "",
            "",
        ),
        ({"to": "王经理", "request": "告诉他3点开会"}, "王经理您好，3点开会。", "", ""),
        ({"to": "王经理", "request": "告诉他3点开会"}, "李经理您好，3点开会。", "", "李经理"),
        ({"to": "Bo", "request": "say “so long”"}, "Hi Bo, bye.", "so long", ""),
    ],
)
def test_facts_of_a_message(given: dict[str, str], text: str, lost: str, invented: str) -> None:
    found = broken("message", given, text)
    assert (", ".join(found.lost), ", ".join(found.invented)) == (lost, invented)


def message(request: str, text: str, to: str = "Ada") -> str:
    return str(broken("message", {"to": to, "request": request}, text))


FINE = "keeps to the facts"


@pytest.mark.parametrize(
    ("request_", "text", "found"),
    [
        ("sag ihm dass die Katze mit ist", "Die Katze ist mit, am Dienstag.", "dienstag"),
        ("sag ihm, ich komme mit", "Ich komme am Mittwoch mit.", "mittwoch"),
        ("tell her that Tom comes", "Tom comes tomorrow.", "tomorrow"),
        ("sag ihr, dass Sam kommt", "Sam kommt am Samstag.", "samstag"),
        ("tell her that Jan comes", "Jan comes in January.", "january"),
        ("tell her she sat there", "You sat there on Saturday.", "saturday"),
        ("sag ihm, mach es so", "Mach es so am Sonntag.", "sonntag"),
        ("sag ihm, ich komme", "Ich komme am Freitagabend.", "freitag"),
        ("dile que llego tarde", "Llego tarde el sábado.", "sábado"),
        ("tell her fri 3pm", "Friday at 3 pm.", ""),
        ("tell her mon or tues", "Monday or Tuesday?", ""),
        ("tell her sat 8 jan", "Saturday, 8 January.", ""),
        ("sag ihm, ich komme am di um 8", "Ich komme am Dienstag um 8.", ""),
        ("mach das bis fr 12 Uhr", "Bis Freitag, 12 Uhr.", ""),
        ("avisa que chego na quarta às 9", "Chego na quarta-feira às 9.", ""),
        ("告诉她我今天晚上到", "我今晚到。", ""),
        ("告诉她我星期三到", "我周四到。", "周四"),
    ],
)
def test_days_are_spelled_out_and_never_invented(request_: str, text: str, found: str) -> None:
    invented = broken("message", {"to": "Ada", "request": request_}, text).invented
    assert ", ".join(invented) == found


@pytest.mark.parametrize(
    ("facts", "text", "fault_"),
    [
        ("free: 0.8 GB", "8 GB are free.", "loses 0.8 and invents 8"),
        ("mean: 3.45", "The mean is 45.", "loses 3.45 and invents 45"),
        ("at: 10:30", "In 30 minutes.", "loses 10:30 and invents 30"),
        ("size: 12 300 MB", "There are 12,300 files.", "loses 12, 300 and invents 12,300"),
        ("size: 12\u202f300 MB", "It has 12,300 MB.", FINE),
        ("size: 12 300 MB", "It has 12 300 MB.", FINE),
        ("outside: -5 °C", "It is 5 °C outside.", "loses -5 and invents 5"),
        ("outside: -5 °C", "It is minus 5 degrees.", FINE),
        ("change: -1.9 %", "It is down 1.9 %.", FINE),
        ("trees down: 3", "We cut down 3 trees.", FINE),
        ("start: 7 am", "It starts at 7 pm.", "loses 7 and invents 7"),
        ("start: 7 a.m.", "It starts at 7 am.", FINE),
        ("start: 7", "It starts at 7 pm.", FINE),
        ("length: 20 minutes", "It takes 20 hours.", "loses 20 and invents 20"),
        ("length: 20 min", "It takes 20 minutes.", FINE),
        ("price: 20 €", "It costs 20 dollars.", "loses 20 and invents 20"),
        ("price: $20", "It costs 20 dollars.", FINE),
        ("départ: 7h15", "Départ à 07:15.", FINE),
        ("open: 10-12", "It is open from 10 to 12.", FINE),
        ("open: 10 to 12", "It is open 10-12.", FINE),
        ("width: 1.340 mm", "It is 1,340 mm wide.", FINE),
        ("files: a/12.txt", "a/12.txt is there.", FINE),
        ("count: ten", "There are 10.", FINE),
        ("count: 25", "There are 25, twenty-five.", FINE),
        ("count: 25", "There are 25, twenty-six.", "invents twenty-six"),
        ("数量: 3", "共 3 个，五个坏了。", "invents 五"),
        ("数量: 12 个", "共 12 个，十二个。", FINE),
        ("ok", "ok drei", "invents drei"),
    ],
)
def test_numbers_are_held_whole_with_sign_and_unit(facts: str, text: str, fault_: str) -> None:
    assert str(broken("report", {"facts": facts}, text)) == fault_


def test_a_message_keeps_days_links_whole_and_whom_it_goes_to() -> None:
    assert message("tell Ada to bring Bo on Friday", "Hi Ada, please come.") == "loses friday"
    link = "https://a.io/x"
    assert message(f"send her {link}", f"See {link}.") == FINE
    assert message(f"send her {link}", f"See {link}yz.") == f"loses {link} and invents {link}yz"
    mailed = "write bo@a.org that I come"
    assert message(mailed, "Hi, I come.", to="bo@a.org") == FINE
    assert message(mailed, "Hi, I come.", to="Bo") == "loses bo@a.org"


@pytest.mark.parametrize(
    ("to", "request_", "text", "found"),
    [
        ("Ada", "tell her I am in the office", "Come to the office with Theo.", "Theo"),
        ("Ada", "ask ann marie", "Ann-Marie, can you come?", ""),
        ("Ada", "tell Ada I am late", "Carlos, I am late.", "Carlos"),
        ("Ada", "tell Ada I am late", "Hi Carlos I am late.", "Carlos"),
        ("Ada", "wish Ada well", "Happy birthday, Carlos!", "Carlos"),
        ("Ada", "tell Ada I am late", "Sorry, I am late.", ""),
        ("Ada", "tell Ada the bus is late", "Ada, the bus is late.", ""),
        (
            "Herr Brandl",
            "sag ihm, es ist bezahlt",
            "Guten Tag Herr Braun, es ist bezahlt.",
            "Braun",
        ),
        ("Herr Brandl", "sag ihm, es ist da", "Es ist da, Frau Nowak hat es.", "Nowak"),
        ("王芳", "告诉她我晚点到", "李娜你好，我晚点到。", "李娜"),
        ("王芳", "告诉她我晚点到", "李娜，我晚点到。", "李娜"),
        ("王芳", "告诉她我晚点到", "王芳，我晚点到。", ""),
        ("大家", "通知大家我晚点到", "各位好，我晚点到。", ""),
        ("建国", "让表哥建国早点来", "建国表哥，早点来。", ""),
    ],
)
def test_names_and_whom_a_message_speaks_to(to: str, request_: str, text: str, found: str) -> None:
    invented = broken("message", {"to": to, "request": request_}, text).invented
    assert ", ".join(invented) == found


@pytest.mark.parametrize(
    ("request_", "change", "text", "found"),
    [
        ("darken slide 2", "slide 12, not 2", "darken slide 12", FINE),
        ("pay 450", "450, now 420", "pay 420", FINE),
        ("zahl 30", "20 statt 30", "zahl 20", FINE),
        ("water zones 1 and 2", "zone 2 is done, zone 5 failed", "water zone 5", FINE),
        ("water zone 2", "zone 2 failed, zone 5 is done", "water it", "loses 2"),
        ("tell Bo of Saturday", "not Saturday, Wednesday", "tell Bo of Wednesday", FINE),
        ("tell Bo", "not on Friday but on Monday", "tell Bo on Monday", FINE),
        ("tell Bo", "not on Friday but on Monday", "tell Bo", "loses monday"),
        ("send https://a.io/x to Bo", "to Ada", "send it to Ada", "loses https://a.io/x"),
        ("save to /a/old", "to /a/new", "save to /a/new", FINE),
        ("book Friday", "for 6", "book for 6", "loses friday"),
        ("print “so long”", "twice", "print it twice", "loses so long"),
        ("list orders since January", "since March", "list orders since March", FINE),
    ],
)
def test_a_rewrite_keeps_what_its_change_leaves(
    request_: str, change: str, text: str, found: str
) -> None:
    assert str(broken("rewrite", {"request": request_, "change": change}, text)) == found


@pytest.mark.parametrize(
    "unit", ["-", "a-", "a.", ".", " ", "/a", "1-", "a@", "a@a.", "Mr. ", '"', "一", "A "]
)
def test_the_check_takes_time_by_length_only(unit: str) -> None:
    text = "a" + unit * (5000 // len(unit))
    began = time.process_time()
    broken("message", {"to": "Ada", "request": text}, text)
    ends(shown(text))
    assert time.process_time() - began < 2  # tenths; a pattern that goes back takes minutes


def test_what_is_wrong_is_said() -> None:
    text = "Hi Bob, I'll be 30 minutes late."
    assert fault("message", LATE, text) == "loses 20 and invents 30, Bob"
    assert fault("message", LATE, None) == "is not well formed"
    assert fault("message", LATE, "Hi", whole=False) == "came to no end"
    german = "Hallo Ada, ich komme 20 Minuten zu spät, weil der Bus nicht fährt."
    assert fault("message", LATE, german) == "is in another language"
    assert fault("judge", JUDGED, VERDICT) == ""
    assert fault("judge", JUDGED, {**VERDICT, "summary": "875 are there."}) == "invents 875"
    other = {**VERDICT, "summary": "Die Sicherung ist nicht fertig, der Platz war zu klein."}
    request = {"request": "back up the photos that are on the stick"}
    assert fault("judge", {**JUDGED, **request}, other) == "is in another language"
    named = {"id": "cars", "title": "Big Cars", "description": "Finds cars that Theo likes"}
    assert fault("name", {"requests": "find a big car"}, named) == "invents Theo"


def test_what_a_reference_keeps_must_be_kept() -> None:
    source, reference = "ask Ada and Bo at 9, room 12", "Ada and Bo, is 9 fine?"
    assert kept(reference, source, "Is 9 fine, Ada and Bo?")
    assert not kept(reference, source, "Is it fine, Ada and Bo?")
    assert not kept(reference, source, "Ada, is 9 fine?")


def test_languages() -> None:
    assert language("the bus is late and I am not there") == "en"
    assert language("der Bus ist zu spät und ich bin nicht da") == "de"
    assert language("今天下午三点开会") == "zh"
    assert language("ok") is None
    assert same_language("今天开会", "今天三点开会") and not same_language("今天开会", "a meeting")
    assert same_language("ok", "der Bus ist zu spät")
