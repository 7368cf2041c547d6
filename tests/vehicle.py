"""A small vehicle that speaks ``sia.vehicle``'s protocol: ``python vehicle.py SOCKET [SECONDS]``.

SECONDS: how long a drive takes while it is not slowed or halted. Its speed changes by 100 km/h a
second, to 50 km/h when it drives. ``python vehicle.py`` can be started by a test or by hand.
"""

from __future__ import annotations

import socketserver
import sys
import threading
import time

FAST, CHANGE, TICK = 50.0, 100.0, 0.01  # km/h, km/h a second, seconds


class Vehicle:
    def __init__(self, seconds: float) -> None:
        self.changed = threading.Condition()
        self.state, self.speed, self.target, self.halts = "idle", 0.0, 0.0, 0
        self.left = self.whole = seconds * FAST  # way
        self.heard: list[str] = []
        threading.Thread(target=self._move, daemon=True).start()

    def _move(self) -> None:
        while True:
            time.sleep(TICK)
            with self.changed:
                change = CHANGE * TICK
                self.speed = max(min(self.target, self.speed + change), self.speed - change)
                self.left -= self.speed * TICK
                if self.state == "driving" and self.left <= 0:
                    self.state, self.speed, self.target = "arrived", 0.0, 0.0
                    self.changed.notify_all()

    def answer(self, line: str) -> str:
        command, _, rest = line.partition(" ")
        with self.changed:
            self.heard.append(line)
            if command == "drive" and rest:
                self.state, self.target, self.left = "driving", FAST, self.whole
            elif command == "target" and rest.isdigit():
                self.target = float(rest)
            elif command == "halt":
                self.target, self.halts = 0.0, self.halts + 1
                self.state = "halted" if self.state == "driving" else self.state
                self.changed.notify_all()
            elif command == "go" and self.state in ("halted", "driving"):
                if rest == str(self.halts):
                    self.state, self.target = "driving", FAST
            elif command == "wait":
                self.changed.wait_for(lambda: self.state != "driving")
            elif command != "status":
                return f"error cannot {line[:40]} while {self.state}"
            return f"ok state={self.state} speed={self.speed:.1f} halts={self.halts}"


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, path: str, seconds: float) -> None:
        self.vehicle = Vehicle(seconds)
        super().__init__(path, Handler)


class Handler(socketserver.StreamRequestHandler):
    server: Server

    def handle(self) -> None:
        for line in self.rfile:
            try:
                self.wfile.write(f"{self.server.vehicle.answer(line.decode().strip())}\n".encode())
            except ConnectionError:
                return


if __name__ == "__main__":
    with Server(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 60.0) as server:
        server.serve_forever()
