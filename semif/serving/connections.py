"""Connections of the server: bounded in number, and in the time that a client may take."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS = 256  # at once; one more is closed as it comes
HEAD_SECONDS = 10.0  # for the head of a request to arrive, from its first byte or the connection on
BODY_SECONDS = 30.0  # for the body of a request to arrive, or a reply to be taken
_MARGIN = 5.0  # in which the application may still say that the body took too long


class Connection(H11Protocol):
    """uvicorn's connection, which by itself waits forever for whoever sends byte after byte.

    An idle one is uvicorn's to close, after its keep-alive time.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._awaited: object = None  # the part of a request that the timer is for
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS:
            transport.abort()
        else:
            self._await_client()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._await_client()

    def connection_lost(self, exc: Exception | None) -> None:
        self._set(None)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._set(BODY_SECONDS)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._set(None)

    def _await_client(self) -> None:
        """Give each part of a request its time, however many pieces it comes in."""
        part = self.conn.their_state
        if part is not self._awaited:
            self._awaited = part
            self._set({h11.IDLE: HEAD_SECONDS, h11.SEND_BODY: BODY_SECONDS + _MARGIN}.get(part))

    def _set(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if seconds is not None and not self.transport.is_closing():
            self._timer = self.loop.call_later(seconds, self.transport.abort)
