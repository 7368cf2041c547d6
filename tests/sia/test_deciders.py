"""Who decides for an agent: a server, and the engine of its home while that one fails."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from semif import RemoteError
from semif.revision import Adapters, Base, Contents, Revision
from semif.serving.fallback import Outage
from semif.serving.server import Server, about, address, listen
from semif.testing import ScriptedDecider
from sia import deciders
from sia.brain import Brain
from sia.cli.main import main
from sia.errors import ConfigError
from sia.events import Notice, Ready
from sia.home import open_home

CONTENTS = Contents(
    parent=None,
    base=Base("0" * 64, "F16"),
    adapters=Adapters(),
    proven=(),
    readout="branches",
    prompt_version="branches-v1",
    temperatures={},
    thresholds={"answers": 0.6},
    none_bias={},
    data_sha256=None,
    metrics={},
)
OWN = Revision("0123456789ab", CONTENTS)
FAR = Revision("ba9876543210", CONTENTS)


def nobody() -> str:
    """The url of a port that was just free."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/v1"


@contextmanager
def serving(decider: ScriptedDecider, url: str = "") -> Iterator[str]:
    ready = threading.Event()
    bound = listen("127.0.0.1", int(url.split(":")[2].split("/")[0]) if url else 0)
    url = f"{address(bound)}/v1"
    server = Server(decider, about("far", FAR, 4096), bound, ready=ready.set)
    thread = threading.Thread(target=server.serve_until_ended)
    thread.start()
    assert ready.wait(20)
    try:
        yield url
    finally:
        server.should_exit = True
        thread.join(20)


def configure(home: Path, **keys: str) -> None:
    lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in keys.items())
    with (home / "sia.toml").open("a") as file:
        file.write(f"[decider]\n{lines}")


def test_without_a_server_the_engine_decides(home: Path) -> None:
    engine = ScriptedDecider(lambda decision: "a")
    assert deciders.make(open_home(home), lambda: engine, OWN, print, 2) == [engine, engine]
    assert deciders.thresholds(engine, OWN) == {"answers": 0.6}


def test_an_agent_whose_server_fails_says_so_and_goes_on(make, rigs, skill, home) -> None:
    skill("echo", "def act(ctx):\n    ctx.say('done')\n")
    far = ScriptedDecider(rigs.policy)
    url = nobody()
    configure(home, url=url)
    rig = make()
    loaded = rig.agent._load()
    own = ScriptedDecider(rigs.policy, OWN.id)

    def load(opened, manual, model, tell) -> Brain:
        admit, decide = deciders.make(opened, lambda: own, OWN, tell, 2, Outage(0.0))
        return Brain(OWN, admit, decide, loaded.generator, loaded.count)

    rig.agent._load = load
    rig.start()
    ready = rig.wait(Ready)
    notice = rig.wait(Notice, level="warning")
    assert ready.revision == OWN.id
    assert f"decider {url} cannot be reached" in notice.text
    assert f"for now {OWN.id} decides here" in notice.text
    rig.say("echo one")
    rig.until(lambda: len(rig.ended) == 1)
    with serving(far, url):
        rig.say("echo two")
        rig.until(lambda: len(rig.ended) == 2)
        rig.wait(Notice, text=f"the decider {FAR.id} answers again")
        seen = len(rig.rows())
    rig.say("echo three")
    rig.until(lambda: len(rig.ended) == 3)
    assert rig.end() == 0
    warnings = [e for e in rig.events if isinstance(e, Notice) and e.level == "warning"]
    assert len(warnings) == 3  # down, there again, down again: none of them twice
    revisions = [found["revision"] for found in rig.rows()]
    assert revisions[0] == OWN.id and FAR.id in revisions[:seen]
    assert set(revisions[seen:]) == {OWN.id}
    assert all("remote" in r["plan"] for r in rig.rows() if r["revision"] == FAR.id)
    # Each file names who decided in it, or, where nothing was, who did so last.
    by_row = {found["id"]: found["revision"] for found in rig.rows()}
    named, last = [], OWN.id
    for iteration in rig.iterations():
        if iteration.decisions:
            last = by_row[iteration.decisions[-1].id]
        named.append(iteration.decision_revision)
        assert iteration.decision_revision == last
    assert named[0] == named[-1] == OWN.id and FAR.id in named


def test_without_a_fallback_an_absent_server_is_the_end(home: Path) -> None:
    configure(home, url=nobody(), fallback="none")
    with pytest.raises(RemoteError, match="it may not be running") as caught:
        deciders.make(open_home(home), lambda: pytest.fail("no engine is needed"), OWN, print)
    assert caught.value.exit_code == 69


def test_one_server_without_a_fallback(home: Path) -> None:
    with serving(ScriptedDecider(lambda decision: "a")) as url:
        configure(home, url=url, fallback="none")
        made = deciders.make(open_home(home), lambda: pytest.fail("none is needed"), OWN, print, 2)
        assert made[0].revision == FAR.id and made[0] is made[1]
        assert deciders.thresholds(made[0], OWN) == {"answers": 0.6}
        made[0].close()


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"url": "http://example.org/v1"}, "sia.toml: the decider's url .* readable over"),
        ({"token_env": "NO_SUCH_TOKEN"}, "decider.token_env names NO_SUCH_TOKEN, which is not set"),
        ({"token_file": "none"}, "decider.token_file: .*/none cannot be read: No such file"),
        ({"token_file": "empty"}, "decider.token_file: the token in .*/empty is empty or has char"),
    ],
)
def test_settings_that_cannot_be(home: Path, keys: dict[str, str], line: str) -> None:
    (home / "empty").touch()
    configure(home, **{"url": "https://example.org/v1", **keys})
    with pytest.raises(ConfigError, match=line) as caught:
        deciders.make(open_home(home), lambda: pytest.fail("none is needed"), OWN, print)
    assert caught.value.exit_code == 78


@pytest.mark.model
def test_the_dry_commands_ask_the_server_too(rigs, home, capfd) -> None:
    with serving(ScriptedDecider(rigs.policy)) as url:
        configure(home, url=url)
        assert main(["admit", "--json", "--home", str(home), "please echo"]) == 0
        (found,) = map(json.loads, capfd.readouterr().out.splitlines())
        assert {decision["revision"] for decision in found["decisions"]} == {FAR.id}
    assert main(["admit", "--json", "--home", str(home), "please echo"]) == 0
    out, err = capfd.readouterr()
    (found,) = map(json.loads, out.splitlines())
    assert FAR.id not in {decision["revision"] for decision in found["decisions"]}
    assert err.startswith("sia: decider http://") and err.count("\n") == 1
