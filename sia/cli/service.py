"""``sia service``: a unit of the user's systemd that keeps the agent up."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from semif.jsonl import write_whole
from sia import home as homes
from sia.errors import DONE, Unavailable

UNIT = """[Unit]
Description=SIA, a local agent

[Service]
ExecStart={command} --home {home} run --listen
Restart=on-failure
RestartPreventExitStatus=2 78
# Told to end, it ends with 130: what it did and its background scripts go on at the next start.
SuccessExitStatus=130
# So a stop ends the agent alone.
KillMode=process

[Install]
WantedBy=default.target
"""


def _quoted(path: Path) -> str:
    text = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text}"'


def service(action: str, folder: Path) -> int:
    """Write or remove the unit and tell systemd. Raises Unavailable where there is none."""
    home = homes.open_home(folder)
    base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    path = base / "systemd" / "user" / "sia.service"
    if action == "install":
        path.parent.mkdir(parents=True, exist_ok=True)
        restart = homes.checkout() / "restart.sh"
        text = UNIT.format(command=_quoted(restart), home=_quoted(home.folder))
        write_whole(path, text.encode())
        print(f"wrote {path}")
    if shutil.which("systemctl") is None:
        raise Unavailable("systemd is not here; start restart.sh yourself")
    verb = ["enable", "--now"] if action == "install" else ["disable", "--now"]
    result = subprocess.run(
        ["systemctl", "--user", *verb, "sia.service"], capture_output=True, text=True, check=False
    )
    if action == "uninstall":
        path.unlink(missing_ok=True)
    if result.returncode:
        raise Unavailable(f"systemctl --user {' '.join(verb)}: {result.stderr.strip()}")
    print("the service is " + ("enabled" if action == "install" else "removed"))
    return DONE
