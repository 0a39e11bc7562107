"""A daemon that a test leads: listens where segue's does, and answers as it is told."""

import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Answer = bytes | None | Callable[[dict[str, Any]], bytes]


class FakeDaemon:
    """Answers every question with these bytes, or as a function says; None: never. Keeps what it
    was asked."""

    def __init__(self, path: str, answer: Answer, pause_s: float = 0.0) -> None:
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path, self.answer, self.pause_s = path, answer, pause_s
        self.asked: list[bytes] = []
        self.kept: list[socket.socket] = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(50)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                line, _ = self.listener.accept()
            except OSError:
                return
            got = b""
            while not _is_whole(got) and (more := line.recv(65536)):
                got += more
            self.asked.append(got)
            if self.answer is None:
                self.kept.append(line)
                continue
            said = self.answer if isinstance(self.answer, bytes) else self.answer(self.events()[-1])
            for byte in (said,) if not self.pause_s else _bytes(said):
                try:
                    line.sendall(byte)
                except OSError:
                    break
                time.sleep(self.pause_s)
            line.close()

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(got.partition(b"\r\n\r\n")[2]) for got in self.asked]

    def close(self) -> None:
        self.listener.close()
        for line in self.kept:
            line.close()


def _bytes(data: bytes) -> list[bytes]:
    return [data[place : place + 1] for place in range(len(data))]


def _is_whole(got: bytes) -> bool:
    head, blank, body = got.partition(b"\r\n\r\n")
    length = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")]
    return bool(blank) and bool(length) and len(body) >= int(length[0].split(b":")[1])


def http(body: bytes, *, status: bytes = b"200 OK", more: bytes = b"") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n%s\r\n%s" % (status, len(body), more, body)
