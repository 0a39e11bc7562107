"""Serves the dashboard on 127.0.0.1 until the user ends it."""

import contextlib
import html
import os
import secrets
import socket
import webbrowser
from collections.abc import Callable, Iterator

from segue.dashboard.access import Keys
from segue.errors import InputError
from segue.system.files import state


def serve(port: int, announce: Callable[[str], None], *, is_opened: bool) -> None:
    """Calls `announce` with the URL once the server answers, and returns when the user ends it.
    Raises InputError if the port cannot be used."""
    import uvicorn

    from segue.dashboard.app import make

    listening = _listen(port)
    keys = Keys(listening.getsockname()[1])
    app, close = make(keys)

    opened = contextlib.ExitStack()

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            announce(keys.url)
            opened.enter_context(_opened(keys.url, is_opened))

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await close()
            await super().shutdown(sockets)

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=1,
    )
    with contextlib.suppress(KeyboardInterrupt), opened:
        Server(config).run(sockets=[listening])


def _listen(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
        listening.listen(64)
    except OSError as fault:
        listening.close()
        raise InputError(
            f"port {port} cannot be used: {fault.strerror}; leave --port out for any free one"
        ) from None
    return listening


@contextlib.contextmanager
def _opened(url: str, is_opened: bool) -> Iterator[None]:
    """Opens the URL in the user's browser, if there is a desktop, by way of a private file: every
    user of the machine can see a browser's arguments, and the URL has the token. Deletes the file
    afterwards."""
    has_desktop = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if not is_opened or not (has_desktop or os.uname().sysname == "Darwin"):
        yield
        return
    folder = state.state_folder()
    os.makedirs(folder, mode=0o700, exist_ok=True)
    place = os.path.join(folder, f"dashboard-{secrets.token_hex(4)}.html")
    handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(
            f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh"'
            f' content="0;url={html.escape(url)}"><title>segue</title>'
        )
    try:
        webbrowser.open(f"file://{place}")
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(place)
