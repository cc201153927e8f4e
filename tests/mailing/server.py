"""A mail server on loopback that does what it is told, and remembers what reached it."""

from __future__ import annotations

import email
import socketserver
import threading
from collections.abc import Callable
from email import policy
from email.message import EmailMessage
from typing import Any


class MailServer(socketserver.ThreadingTCPServer):
    """`mode`: `take` each letter, `refuse` the recipient for good, `later` (not now), `lose` the line after the letter
    came whole, so that the sender never hears of it. `came` is called then as well, before the sender is answered."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.mode = "take"
        self.received: list[EmailMessage] = []
        self.came: Callable[[], None] = lambda: None
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Session(socketserver.StreamRequestHandler):
    server: MailServer

    def handle(self) -> None:
        self._say("220 ready")
        for raw in self.rfile:
            line = raw.decode().strip()
            word = line.partition(" ")[0].upper()
            if word == "DATA":
                self._say("354 go on")
                if not self._letter():
                    return
            elif word == "RCPT" and self.server.mode in ("refuse", "later"):
                self._say({"refuse": "550 no such mailbox", "later": "451 try later"}[self.server.mode])
            else:
                self._say("221 bye" if word == "QUIT" else "250 ok")
            if word == "QUIT":
                return

    def _letter(self) -> bool:
        lines = []
        for raw in self.rfile:
            if raw == b".\r\n":
                break
            lines.append(raw.removeprefix(b".") if raw.startswith(b"..") else raw)
        message: Any = email.message_from_bytes(b"".join(lines), policy=policy.default)
        self.server.received.append(message)
        self.server.came()
        if self.server.mode == "lose":
            return False
        self._say("250 taken")
        return True

    def _say(self, words: str) -> None:
        self.wfile.write(f"{words}\r\n".encode())
