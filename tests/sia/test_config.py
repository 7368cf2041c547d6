"""sia.toml: each mistake is one line that names file, key and what to do."""

from pathlib import Path

import pytest

from sia.config import Config, load, origins, section
from sia.errors import ConfigError
from sia.home import open_home


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sia.toml"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("emial = 1", "unknown key emial; did you mean email?"),
        ("[email]\nprot = 25", "unknown key email.prot; did you mean port?"),
        ("[queue]\nzzz = 1", "unknown key queue.zzz; known: limit, rate"),
        ("[email]\nport = '25'", "email.port: expected `int`, got `str`"),
        ("email = 3", "email: expected `object`, got `int`"),
        ("[generator]\nkind = 'cloud'", "generator.kind: invalid enum value 'cloud'"),
        ("[generator]\nproven = [1]", "generator.proven[0]: expected `str`, got `int`"),
        ("[loop]\nturns = 0", "loop.turns = 0: must be a finite number above 0"),
        ("[queue]\nrate = 0.0", "queue.rate = 0.0: must be a finite number above 0"),
        ("[queue]\nrate = nan", "queue.rate = nan: must be a finite number above 0"),
        ("[queue]\nrate = inf", "queue.rate = inf: must be a finite number above 0"),
        ("[queue]\nlimit = -1", "queue.limit = -1: must be a finite number above 0"),
        ("[scripts]\nseconds = -1", "scripts.seconds = -1.0: must be a finite number above 0"),
        ("[scripts]\nshown_bytes = 0", "scripts.shown_bytes = 0: must be a finite number above 0"),
        ("[scripts]\nfile_bytes = 100", "scripts.file_bytes = 100: must be at least 32,768"),
        ("[generator]\ntimeout = 0", "generator.timeout = 0.0: must be a finite number above 0"),
        ("[decider]\ntimeout = 0", "decider.timeout = 0.0: must be a finite number above 0"),
        ("[decider]\ndialect = 'soap'", "decider.dialect: invalid enum value 'soap'"),
        (
            "[decider]\nurl = 'x'\ndialect = 'openai'",
            "decider.dialect is openai: set decider.model",
        ),
        (
            "[decider]\ntoken_env = 'A'\ntoken_file = 'b'",
            "set decider.token_env or decider.token_file",
        ),
        ("[model]\nthreads = -1", "model.threads = -1: must be 0 or more"),
        ("[generator]\ncontext = 512", "generator.context = 512: must be above max_tokens, 512"),
        ("[loop]\ncontext_limit = 101", "loop.context_limit = 101: must be from 1 to 100"),
        ("[loop]\ncontext_notice = 0", "loop.context_notice = 0: must be from 1 to 100"),
        ("[intake]\nhigh_stakes = 1.5", "intake.high_stakes = 1.5: must be from 0 to 1"),
        ("[[watch]]\npth = 'a'", "unknown key watch[0].pth; did you mean path?"),
        ("[[watch]]\ntext = 'a'", "watch[0]: object missing required field `path`"),
        ("[[watch]]\npath = ' '", "watch[0].path is empty: name a file or a folder"),
        ('[[watch]]\npath = "a\\u0000b"', "watch[0].path holds a NUL character"),
        ("[[watch]]\npath = 'a'\ntext = ''", "watch[0].text is empty: say what is to come in"),
        ("[[watch]]\npath = 'a'\ntext = '{path.x}'", "{path.x} must be one of {path}, {name}"),
        ("[[watch]]\npath = 'a'\ntext = '{path!r}'", "{change}, and no more"),
        ("[[watch]]\npath = 'a'\ntext = '{path'", "expected '}' before end of string; a brace is"),
        ("[[watch]]\npath = 'a'\nseconds = 0", "watch[0].seconds = 0.0: must be above 0, at most"),
        ("[generator]\nkind = 'openai'", "generator.kind is openai: set generator.url too"),
        ("[person]\ntimezone = 'Mars/Base'", "person.timezone = 'Mars/Base': not a time zone"),
        ("[person]\ntimezone = '../../etc/passwd'", "not a time zone; e.g. Europe/Berlin"),
        ("[person]\ntimezone = 'a\\u0000b'", "not a time zone"),
        ("[email\nport = 1", "not valid TOML: "),
        ("a = 1\na = 2", "not valid TOML: "),
    ],
)
def test_a_mistake_is_one_line(path: Path, text: str, says: str) -> None:
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    message = str(caught.value)
    assert says in message and message.startswith(f"{path}: ") and "\n" not in message
    assert caught.value.exit_code == 78


def test_what_is_no_text_is_one_line(path: Path) -> None:
    path.write_bytes(b"[email]\nhost = '\xff'")
    with pytest.raises(ConfigError, match="not UTF-8 at byte 16; save it as UTF-8"):
        load(path)
    path.write_bytes(bytes(100))
    with pytest.raises(ConfigError, match="not valid TOML"):
        load(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(path)


def test_every_key_is_optional(path: Path) -> None:
    assert load(path) == Config()
    path.write_text("")
    assert load(path) == Config()


def test_each_value_knows_where_it_came_from(path: Path) -> None:
    path.write_text("[email]\nport = 25\n[queue]\nrate = 1\n")
    rows = {key: (value, origin) for key, value, origin in origins(path)}
    assert rows["email.port"] == (25, "sia.toml")
    assert rows["queue.rate"] == (1.0, "sia.toml")
    assert rows["queue.limit"] == (1000, "default")
    assert rows["generator.proven"] == (None, "default")
    assert list(rows)[0] == "person.name" and len(rows) == sum(
        len(section(Config(), name)) for name in Config.__struct_fields__
    ) + 1
    assert rows["watch"] == ([], "default")
    path.write_text('[[watch]]\npath = "a"\n[[watch]]\npath = "b"\nseconds = 2\n')
    rows = {key: (value, origin) for key, value, origin in origins(path)}
    assert rows["watch[1].seconds"] == (2.0, "sia.toml")
    assert rows["watch[0].seconds"] == (1.0, "default") and "watch" not in rows


def test_a_section_by_name() -> None:
    assert section(Config(), "queue") == {"limit": 1000, "rate": 0.1}
    assert section(Config(), "reminders") == {}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "contacts"),
        ('[contacts]\nfolder = "people"', "people"),
        ('[contacts]\nfolder = "people"\n[email]\ncontacts = "mine.vcf"', "mine.vcf"),
    ],
)
def test_mail_knows_the_people_of_the_contacts(tmp_path: Path, text: str, place: str) -> None:
    """Also those that a CardDAV server keeps: they are copied into that folder."""
    (tmp_path / "sia.toml").write_text(text)
    assert open_home(tmp_path).settings("email")["contacts"] == str(tmp_path / place)
