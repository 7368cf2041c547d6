"""A worker ends with its agent, however the agent went."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import sia


@pytest.mark.parametrize("last_words", [b"", b'{"folder": "/half/of'], ids=["silent", "torn"])
@pytest.mark.parametrize("read", [True, False], ids=["read", "unread"])
def test_it_ends_when_the_agents_end_closes(last_words: bytes, read: bool) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        worker = subprocess.Popen(
            [sys.executable, "-P", "-m", "sia.skills.worker", str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(Path(sia.__file__).parents[1])},
        )
    ready = ours.recv(100, 0 if read else socket.MSG_PEEK)
    assert ready.startswith(b'{"ready"')
    ours.sendall(last_words)
    ours.close()
    assert worker.wait(timeout=10) == -9
