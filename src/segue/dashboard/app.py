"""The web application: pages, their live updates, and actions."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from typing import TypeVar
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from segue.dashboard import actions
from segue.dashboard.access import Gate, Keys
from segue.dashboard.pages import Page, Pages
from segue.dashboard.sources import Source
from segue.errors import InputError, SegueError

_LOOK_S = 0.1
_BEAT_S = 15.0
_WORDS_S = 1.0  # what an agent says changes only its output file, not a version
_MAX_FORM = 10_000  # bytes
_STATIC = {
    "app.js": "text/javascript; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
T = TypeVar("T")


class Dashboard:
    """The pages and their updates. Blocking work runs in one separate thread. While no page is
    open, nothing is read."""

    def __init__(self, keys: Keys) -> None:
        self.keys, self.source = keys, Source()
        self.pages = Pages(self.source, keys.csrf)
        self.worker = ThreadPoolExecutor(1, "segue-pages")
        self.changed = asyncio.Condition()
        self.version = self.viewers = 0
        self.is_closing = False
        self._looking: asyncio.Task[None] | None = None

    async def call(self, work: Callable[[], T]) -> T:
        """Runs blocking work in that thread."""
        return await asyncio.get_running_loop().run_in_executor(self.worker, work)

    async def page(self, path: str) -> Page:
        """The current page. Raises InputError if there is none."""

        def draw() -> Page:
            self.source.look()
            return self.pages.page(path)

        return await self.call(draw)

    async def _look(self) -> None:
        while self.viewers:
            try:
                is_new = await self.call(self.source.look)
            except (
                Exception
            ):  # a page must outlive whatever a file holds; the next look tries again
                is_new = False
            if is_new:
                async with self.changed:
                    self.version += 1
                    self.changed.notify_all()
            await asyncio.sleep(_LOOK_S)
        self._looking = None

    async def close(self) -> None:
        """Ends the update streams of open pages, so that the server can shut down at once."""
        async with self.changed:
            self.is_closing = True
            self.version += 1
            self.changed.notify_all()

    @contextlib.asynccontextmanager
    async def viewing(self) -> AsyncIterator[None]:
        """Keeps reading new data while a page is open."""
        self.viewers += 1
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        try:
            yield
        finally:
            self.viewers -= 1

    async def news(self, path: str) -> AsyncIterator[str]:
        """Server-sent events for one open page: the blocks that changed since the last event, and
        the order of its lists."""
        async with self.viewing():
            sent: dict[str, str] = {}
            lists: dict[str, list[str]] = {}
            patience_s = _WORDS_S if path.startswith("/runs/") else _BEAT_S
            while not self.is_closing:
                version = self.version
                try:
                    now = await self.call(lambda: self.pages.page(path))
                    new = {id: html for id, html in now.blocks.items() if sent.get(id) != html}
                    moved = {name: ids for name, ids in now.lists.items() if lists.get(name) != ids}
                    sent, lists = now.blocks, now.lists
                    update = {"blocks": new, "lists": moved} if new or moved else None
                except SegueError as fault:
                    update = {"trouble": str(fault)}
                yield f"data: {json.dumps(update)}\n\n" if update else ": still here\n\n"
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(patience_s), self.changed:
                        while self.version == version:
                            await self.changed.wait()


def make(keys: Keys) -> tuple[Gate, Callable[[], Awaitable[None]]]:
    """The application behind its gate, and a function to await before the server shuts down."""
    board = Dashboard(keys)

    async def page(request: Request) -> Response:
        path = request.url.path
        try:
            found = await board.page(path)
            return HTMLResponse(board.pages.whole(path, found))
        except InputError as fault:
            return HTMLResponse(board.pages.plain("Not found", str(fault)), 404)
        except SegueError as fault:
            return HTMLResponse(board.pages.plain("Cannot be shown", str(fault)), 503)

    async def live(request: Request) -> Response:
        path = request.query_params.get("page", "/")
        return StreamingResponse(board.news(path), media_type="text/event-stream")

    async def act(request: Request) -> Response:
        if int(request.headers.get("content-length") or 0) > _MAX_FORM:
            return HTMLResponse(board.pages.plain("Refused", "request too large"), 413)
        body = (await request.body())[:_MAX_FORM]
        form = {k: v[0] for k, v in parse_qs(body.decode("utf-8", "replace")).items()}
        wants_json = "application/json" in request.headers.get("accept", "")
        if not keys.is_form_of_ours(form.get("csrf", "")):
            text = "the page is older than this dashboard: reload it"
            done, status = actions.CommandResult(False, text, ""), 403
        else:
            try:
                done = await actions.do(form.get("what", ""), form.get("name", ""))
                status = 200 if done.is_ok else 409
            except InputError as fault:
                done, status = actions.CommandResult(False, str(fault), ""), 400
            board.source.hurry()
        if wants_json:
            answer = {"ok": done.is_ok, "said": done.message, "command": done.command}
            return JSONResponse(answer, status)
        title = "Done" if done.is_ok else "Refused"
        return HTMLResponse(board.pages.plain(title, done.message, form.get("back", "/")), status)

    async def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _STATIC:
            return Response(status_code=404)
        data = resources.files("segue.dashboard").joinpath("static", name).read_bytes()
        return Response(data, media_type=_STATIC[name])

    shown = ("/", "/runs", "/runs/{run}", "/sessions/{key}", "/history", "/log")
    routes = [
        *(Route(path, page, methods=["GET"]) for path in shown),
        Route("/live", live, methods=["GET"]),
        Route("/act", act, methods=["POST"]),
        Route("/static/{name}", static, methods=["GET"]),
    ]
    return Gate(Starlette(routes=routes), keys), board.close
