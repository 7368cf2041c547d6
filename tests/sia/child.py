"""An agent in a process of its own, for tests that kill it: child.py HOME KIND."""

import os
import signal
import sys
import threading
from pathlib import Path

from rig import Rig

from sia.agent import Agent, Options
from sia.events import Admitted, Asked, Said, TurnEnded
from sia.generator.testing import until_cancelled

DIE = ("said", "effect", "rings")  # kinds that kill themselves in the act


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(folder: Path, kind: str) -> None:
    match kind:
        case "loading":  # the models never come
            home = Rig(folder).home
            agent = Agent(home, Options(), print, lambda *_: threading.Event().wait())
            agent.submit("echo early", "typed")
            threading.Thread(target=agent.run, daemon=True).start()
        case "queued":
            rig = Rig(folder, [until_cancelled]).start()
            rig.say("free: first")
            rig.wait(TurnEnded, n=1)
            rig.say("echo second")
            rig.wait(Admitted, text="echo second", action="queue")
        case "said":  # dies with the words out, but not known to be
            rig = Rig(folder)
            rig.agent.listen(lambda event: die() if isinstance(event, Said) else None)
            rig.say("echo once")
            rig.start()
        case "asked":
            rig = Rig(folder).start()
            rig.say("ask me")
            rig.wait(Asked)
            rig.until(lambda: rig.agent.loop.idle())
        case "effect":  # its effect kills us
            Rig(folder).start().say("mail it")
        case "script":
            rig = Rig(folder, ["<single_shot>echo begun; sleep 1; echo ended</single_shot>"])
            rig.start().say("free: script")
            rig.until(lambda: list(rig.home.scripts.glob("e5/stdout")))
        case "idle":
            rig = Rig(folder).start()
            rig.until(lambda: rig.agent.loop is not None)
        case "rings":
            rig = Rig(folder)
            rig.agent.listen(lambda event: die() if isinstance(event, Said) else None)
            rig.start()
    if kind not in DIE:
        print("ready", flush=True)
    threading.Event().wait(60)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
