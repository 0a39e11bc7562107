"""A service on loopback that is sent notices, as Apprise's json:// does."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class NoticeService:
    """Keeps what it was sent; `status` is what it answers, and `hangs` keeps it from doing so."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.status = 200
        self.answers = threading.Event()
        self.answers.set()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                service.got.append(json.loads(body))
                service.answers.wait(60)
                self.send_response(service.status)
                self.end_headers()

            def log_message(self, *args: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"json://127.0.0.1:{self.server.server_address[1]}/"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    @property
    def titles(self) -> list[str]:
        return [str(each["title"]) for each in self.got]


@contextmanager
def noticed() -> Iterator[NoticeService]:
    service = NoticeService()
    try:
        yield service
    finally:
        service.answers.set()
        service.server.shutdown()
        service.thread.join()
        service.server.server_close()
