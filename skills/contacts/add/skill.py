"""Saves a person's number or address: on a new card, or on the one that is there."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from semif.jsonl import write_whole
from sia import carddav, contacts, people
from sia.contacts import Contact
from sia.dav import Refused, Unknown
from sia.skills.api import Ctx, Failed, Finished

_PHONE = re.compile(r"(?<![\w+])(?:\+|00)?\(?\d[\d\s()/.-]{3,}\d(?!\w)")
_NOISE = re.compile(
    r"\b(?:please|bitte|add|save|store|create|make|new|put|note|remember|contact|contacts|number|phone"
    r"|telephone|mobile|cell|e-?mail|mail|address|to|in|into|my|the|an?|is|as|for|with|and|named|called"
    r"|of|his|her|their|under|neuen?|kontakt|kontakte|nummer|speicher[en]?|füge|hinzu|von|ist|und|mit)"
    r"\b|['’]s\b|[:,;]",
    re.IGNORECASE,
)
_NEVER_MIND = re.compile(r"(?:no|never ?mind|cancel|stop|nein|abbrechen)\W*", re.IGNORECASE)
_NEW = "a new card"


def understand(ctx: Ctx) -> None:
    emails = contacts.ADDRESS.findall(ctx.request)
    text = contacts.ADDRESS.sub(" ", ctx.request)
    phones = _phones(text)
    name = " ".join(_NOISE.sub(" ", _PHONE.sub(" ", text)).split()).strip(" .!?-")
    name = " ".join(word[:1].upper() + word[1:] for word in name.split())
    name = name or _asked(ctx, "What is the contact's name?")
    if not (phones or emails):
        answer = _asked(ctx, f"What is the number or e-mail address of {name}?")
        emails = contacts.ADDRESS.findall(answer)
        phones = _phones(contacts.ADDRESS.sub(" ", answer))
    if not (phones or emails):
        raise Failed("That is neither a number nor an e-mail address; nothing is saved.", "text")
    person = _there(ctx, name)
    if person:
        phones = [phone for phone in phones if not contacts.has(person, phone)]
        emails = [email for email in emails if not contacts.has(person, email)]
        name = person.name
        if not (phones or emails):
            ctx.say(f"That is on the card of {person.description} already.")
            raise Finished
    source = person.source if person else None
    ctx.state.update(
        name=name,
        phones=phones,
        emails=emails,
        source=[str(source[0]), source[1]] if source else [],
    )


def approve(ctx: Ctx) -> None:
    what = ", ".join([*ctx.state["phones"], *ctx.state["emails"]])
    card = "the card of" if ctx.state["source"] else "a new card:"
    if not ctx.confirm(f"Save {what} on {card} {ctx.state['name']}?"):
        ctx.say("All right, nothing is saved.")
        raise Finished


def save(ctx: Ctx) -> None:
    state, folder, server = ctx.state, people.folder(ctx), people.server(ctx)
    name, phones, emails = state["name"], state["phones"], state["emails"]
    moment = ctx.now.isoformat()

    def do(key: str) -> dict[str, str]:
        try:
            if state["source"]:
                _extend(Path(state["source"][0]), state["source"][1])
            elif server:
                uid = _uid(key, moment)
                carddav.add(server, uid, contacts.card(name, phones, emails, uid))
            else:
                _new(folder, _uid(key, moment))
            if server:
                carddav.sync(server, folder)
        except Refused as error:
            return {"refused": str(error)}
        except (OSError, IndexError) as error:
            return {"refused": f"the card cannot be written: {error}"}
        except Unknown as error:
            raise Failed(f"{error}; it may or may not be saved.", "environment") from None
        return {"saved": name}

    def _extend(file: Path, number: int) -> None:
        if server and file.parent == carddav.copies(server, folder):
            carddav.extend(server, file, phones, emails)
            return
        text, encoding = contacts.decoded(file.read_bytes())
        lines = contacts.extended(text, number, phones, emails)
        # A link to where the person really keeps it stays one.
        write_whole(file.resolve(), lines.encode(encoding))

    def _new(place: Path, uid: str) -> None:
        card = contacts.card(name, phones, emails, uid)
        if place.is_file():
            text, encoding = contacts.decoded(place.read_bytes())
            try:
                data = (text.rstrip() + "\r\n" + card).encode(encoding)
            except UnicodeEncodeError:
                raise Refused(f"{place.name} is in {encoding}, which cannot hold {name}") from None
            write_whole(place.resolve(), data)
            return
        place.mkdir(parents=True, exist_ok=True)
        write_whole(place / f"{uid}.vcf", card.encode())

    result = ctx.effect("save contact", do, lambda key: _saved(ctx))
    if result and result.get("refused"):
        raise Failed(f"Nothing is saved: {result['refused']}.", "environment")
    ctx.say(f"Saved: {name}, {', '.join([*phones, *emails])}.")


def verify(ctx: Ctx) -> bool | None:
    return _saved(ctx) if ctx.state.get("name") else None


def _saved(ctx: Ctx) -> bool | None:
    """Whether a card of that name has all of it; None where the server does not say."""
    known, stale = people.known(ctx)
    state = ctx.state
    rows = [person for person in known.people if person.name == state["name"]]
    values = [*state["phones"], *state["emails"]]
    if all(any(contacts.has(person, value) for person in rows) for value in values):
        return True
    return None if stale else False


def _there(ctx: Ctx, name: str) -> Contact | None:
    """The person of that name who has a card, if the new line belongs onto it."""
    said = contacts.words(name)
    known, _ = people.known(ctx)
    near = [person for person in known.people if said <= contacts.words(person.name)]
    exact = [person for person in near if contacts.words(person.name) == said] or near
    if not exact:
        return None
    described = [f"the card of {person.description}" for person in exact[:20]]
    # Two may be called alike, and a card that is not offered cannot be meant.
    options = {
        text if described.count(text) == 1 else f"{number}. {text} ({_known_by(person)})": person
        for number, (text, person) in enumerate(zip(described, exact, strict=False), 1)
    }
    return options.get(ctx.ask(f"{name} is known. Where does it go?", [*options, _NEW]))


def _known_by(person: Contact) -> str:
    return ", ".join(value for _, value in [*person.emails, *person.phones][:2]) or "nothing on it"


def _phones(text: str) -> list[str]:
    return [" ".join(phone.split()) for phone in _PHONE.findall(text)]


def _uid(key: str, moment: str) -> str:
    return str(uuid5(NAMESPACE_URL, f"contact {key} {moment}"))


def _asked(ctx: Ctx, question: str) -> str:
    answer = ctx.ask(question)
    if not answer or _NEVER_MIND.fullmatch(answer):
        ctx.say("All right, nothing is saved.")
        raise Finished
    return answer
