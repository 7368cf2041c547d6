"""An agent in a process of its own, for tests that kill it: child.py HOME KIND [MOMENT]."""

import os
import signal
import sys
import threading
from pathlib import Path

from rig import Rig, mailing

from sia.agent import Agent, Options
from sia.events import Admitted, Asked, Event, Routed, Said, TurnEnded
from sia.generator.testing import until_cancelled
from sia.intake import Intake

# Kinds that kill themselves in the act.
DIE = ("said", "effect", "rings", "spool_taken", "spool_kept", "spool_deleted")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_in_spool(kind: str) -> None:
    """Once the file is out of its folder; once its input is kept; once it is deleted."""
    submit, unlink = Intake.submit, Path.unlink

    def kept(self, text, source, within):
        if kind == "spool_taken":
            die()
        run = submit(self, text, source, within)
        if kind == "spool_kept":
            die()
        return run

    def deleted(self, missing_ok=False):
        unlink(self, missing_ok)
        if self.parent.name == "spool" and kind == "spool_deleted":
            die()

    Intake.submit, Path.unlink = kept, deleted
    Intake._admit = lambda self, item: threading.Event().wait()  # or it may be done before we are


def mail(folder: Path, moment: str) -> None:
    """Send a mail and die at a moment of it; at those of the dialogue the server kills us."""
    rig = Rig(folder, decide=mailing)
    keep = rig.agent.store.save_result

    def hear(event: Event) -> None:
        match event:
            case Admitted(action="run"):
                reached("admitted")
            case Routed():
                reached("routed")
            case Asked():
                reached("asked")
                rig.say("yes")
            case Said(text=text) if text.startswith("Sent"):
                reached("said")

    def reached(now: str) -> None:
        if now == moment:
            die()

    def save_result(run, action, ordinal, method, value, status="done") -> None:
        if method == "confirm":
            keep(run, action, ordinal, method, value, status)
            reached("answered")
            return
        what = {"intended": "intent", "done": "confirmation"}[status]
        if method == "send e-mail":
            reached(f"before the {what} is kept")
        keep(run, action, ordinal, method, value, status)
        if method == "send e-mail":
            reached(f"after the {what} is kept")

    rig.agent.store.save_result = save_result
    rig.agent.listen(hear)
    rig.say("tell anna@example.org that I will be late")
    rig.start()
    threading.Event().wait(60)


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
            # And sleeps: what was said is then known to have been heard.
            rig.until(lambda: rig.agent.loop.idle() and not rig.agent.store.messages())
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
        case "spool_taken" | "spool_kept" | "spool_deleted":  # dies in taking a dropped file
            rig = Rig(folder)
            (folder / "spool/dropped").write_text("echo dropped")
            die_in_spool(kind)
            rig.start()
    if kind not in DIE:
        print("ready", flush=True)
    threading.Event().wait(60)


if __name__ == "__main__":
    if sys.argv[2] == "mail":
        mail(Path(sys.argv[1]), sys.argv[3])
    else:
        main(Path(sys.argv[1]), sys.argv[2])
