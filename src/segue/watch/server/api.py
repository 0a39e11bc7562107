"""The daemon's API: routes, and JSON in and out (docs/api.md).

It knows nothing about sockets: `server` delivers requests and sends the answers.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qsl, unquote

import msgspec

from segue import __version__
from segue.core.terminals.visible import escape_json, to_json
from segue.errors import SegueError
from segue.watch.log import Note
from segue.watch.server import metrics

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
EVENTS = "text/event-stream"
MARKDOWN = "text/markdown; charset=utf-8"
_MAX_LINE = 500  # characters of an error
_MAX_DIGITS = 18
_OWN: dict[str, tuple[str, ...]] = {"order": ("argv",), "live": ("flags",)}
"""What stays in the log, because arguments of agents may contain keys."""


class Daemon(Protocol):
    """What the API needs. All methods except `wait_notes` are quick, and any thread may call them.

    The client gets the line of a SegueError (with status 400 if it is the client's mistake, that is
    if its exit code is 2, otherwise 503). Any other exception is a 500 without details.
    """

    def status(self) -> dict[str, Any]:
        """The daemon itself: `log_seq`, `uptime_s`, `paused` (a list of names), and more."""

    def sessions(self) -> list[dict[str, Any]]:
        """The sessions, as in `segue status --json`."""

    def changes(self, after: int | None) -> dict[str, Any]:
        """`revision`, the `sessions` that changed since that one, and those that are `gone`;
        `is_whole` if these are all sessions, because it is too long ago to tell."""

    def session(self, name: str) -> dict[str, Any] | None:
        """One session, by its id or the beginning of it."""

    def notes(self, after: int, kinds: tuple[str, ...], limit: int) -> list[Note]:
        """The first `limit` notes after that one, of these kinds or of all, in order."""

    def wait_notes(self, after: int, timeout_s: float) -> list[Note]:
        """The same for all kinds, once there are some; empty if the time is up first."""

    def metrics(self) -> Mapping[str, Any]:
        """By the names in `metrics.KNOWN`: a number, or numbers by label, nested."""

    def figures(self, since: float | None) -> Mapping[str, Any]:
        """The figures, as in `segue report --figures --json`."""

    def pause(self, what: str) -> str:
        """Pauses that session or project ("": all), and says so in one line."""

    def unpause(self, what: str) -> str:
        """Ends a pause."""

    def handoff(self, session: str, *, retry: bool) -> str:
        """Starts a handoff now; `retry` continues one that waits for the user."""

    def cancel(self, session: str) -> str:
        """Cancels a session's handoff or resume."""

    def yes(self, what: str) -> str:
        """The user allows what was asked about that session ("": all)."""

    def hook(self, event: dict[str, Any]) -> tuple[bytes, int]:
        """What an agent's hook prints, and its exit code."""

    def statusline(self, payload: dict[str, Any]) -> bytes:
        """The line, in UTF-8."""

    def fits(self, session: str, tokens: int) -> dict[str, Any]:
        """As in `segue fits --json`."""

    def handoffs(self) -> list[dict[str, Any]]:
        """The handoffs, newest first."""

    def handoff_text(self, id: str) -> str | None:
        """A handoff's document."""


class ApiRequest(NamedTuple):
    """One complete request, as the server read it."""

    method: str
    target: str
    body: bytes = b""
    last_event_id: str = ""


class ApiReply(NamedTuple):
    """One complete response, ready to be sent."""

    status: int
    body: bytes
    kind: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


class ApiStream(NamedTuple):
    """A response that continues: notes after `after`, of these kinds or of all. `latest` is the
    log's last note at the time of the request."""

    after: int
    kinds: tuple[str, ...]
    latest: int


class ApiInput(NamedTuple):
    """What a route sees of a request."""

    name: str  # the last part of the path, if the route has `{id}`
    query: Mapping[str, str]
    body: bytes
    last_event_id: str

    def fields(self) -> dict[str, Any]:
        """The body, which must be a JSON object."""
        try:
            found: Any = msgspec.json.decode(self.body)
        except (ValueError, RecursionError) as error:
            raise ApiRefusal(400, f"the body is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise ApiRefusal(400, "the body must be a JSON object")
        return found

    def text(self, key: str, *, default: str | None = None) -> str:
        """A string in the body; without a default it is required and must not be empty."""
        found = self.fields().get(key, default) if self.body or default is None else default
        if not isinstance(found, str) or (default is None and not found):
            raise ApiRefusal(400, f"`{key}` in the body must be a string")
        return found

    def number(self, key: str) -> int:
        """A count in the query."""
        return _count(self.query.get(key, ""), f"`{key}` in the query")


class ApiRefusal(Exception):  # noqa: N818 - told to the client
    """The request is refused."""

    def __init__(self, status: int, why: str, *headers: tuple[str, str]) -> None:
        super().__init__(why)
        self.status, self.headers = status, headers

    def reply(self) -> ApiReply:
        """The refusal as a response."""
        return ApiReply(self.status, encode({"error": _line(str(self))}), headers=self.headers)


class Api:
    """Answers requests. `broke` gets exceptions that the daemon should not have raised; `own`
    returns the server's own numbers for the metrics."""

    def __init__(
        self,
        daemon: Daemon,
        *,
        broke: Callable[[Exception], None] = lambda error: None,
        own: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self.daemon, self.broke, self.own = daemon, broke, own

    def answer(self, request: ApiRequest) -> ApiReply | ApiStream:
        """The response to a request. Never raises."""
        try:
            return self._answer(request)
        except ApiRefusal as refused:
            return refused.reply()
        except SegueError as error:
            return ApiRefusal(400 if error.exit_code == 2 else 503, str(error)).reply()
        except Exception as error:  # an error in the daemon must not end the server
            self.broke(error)
            return ApiRefusal(500, f"internal error in the daemon: {type(error).__name__}").reply()

    def _answer(self, request: ApiRequest) -> ApiReply | ApiStream:
        path, _, query = request.target.partition("#")[0].partition("?")
        route, name = find(path)
        if route is None:
            raise ApiRefusal(404, f"no such path: {path}; docs/api.md lists them")
        method = "GET" if request.method == "HEAD" else request.method
        handle = ROUTES[route].get(method)
        if handle is None:
            methods = ", ".join(m for m in ROUTES[route])
            raise ApiRefusal(405, f"{path} takes {methods}", ("allow", methods))
        try:
            asked = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=50))
        except ValueError:
            raise ApiRefusal(400, "too many fields in the query") from None
        found = handle(self, ApiInput(name, asked, request.body, request.last_event_id))
        if isinstance(found, ApiStream) and request.method == "HEAD":
            return ApiReply(200, b"", EVENTS)
        return found

    def status(self, given: ApiInput) -> ApiReply:
        """The daemon itself."""
        found = {"log_seq": 0, "uptime_s": 0.0, "paused": [], **self.daemon.status()}
        return _json({**found, "schema": 1, "version": __version__, "pid": os.getpid()})

    def sessions(self, given: ApiInput) -> ApiReply:
        """All watched sessions."""
        return _json({"sessions": self.daemon.sessions()})

    def changes(self, given: ApiInput) -> ApiReply:
        """The sessions that changed since the client's revision."""
        after = given.number("after") if "after" in given.query else None
        return _json(self.daemon.changes(after))

    def session(self, given: ApiInput) -> ApiReply:
        """One session."""
        found = self.daemon.session(given.name)
        if found is None:
            raise ApiRefusal(404, f"no session {given.name}; /v1/sessions lists them")
        return _json(found)

    def events(self, given: ApiInput) -> ApiStream:
        """Notes from now on, or after the last one that the client had."""
        latest = int(self.daemon.status().get("log_seq", 0))
        kinds = tuple(kind for kind in given.query.get("kinds", "").split(",") if kind)
        after = latest
        if given.last_event_id:
            after = _count(given.last_event_id, "Last-Event-ID")
        elif "after" in given.query:
            after = given.number("after")
        # A number that does not exist yet comes from a log that was lost, so all of the new log is
        # news.
        return ApiStream(after if after <= latest else 0, kinds, latest)

    def metrics(self, given: ApiInput) -> ApiReply:
        """For Prometheus."""
        about = self.daemon.status()
        values = {
            "uptime": about.get("uptime_s", 0.0),
            "log_seq": about.get("log_seq", 0),
            "info": {__version__: 1},
            **self.own(),
            **self.daemon.metrics(),
        }
        return ApiReply(200, metrics.text(values).encode("utf-8", "replace"), metrics.CONTENT_TYPE)

    def figures(self, given: ApiInput) -> ApiReply:
        """How well handoffs work; `since` is in unix seconds."""
        since = float(given.number("since")) if "since" in given.query else None
        return _json(self.daemon.figures(since))

    def handoffs(self, given: ApiInput) -> ApiReply:
        """All known handoffs."""
        return _json({"handoffs": self.daemon.handoffs()})

    def handoff_text(self, given: ApiInput) -> ApiReply:
        """The document of a handoff."""
        found = self.daemon.handoff_text(given.name)
        if found is None:
            raise ApiRefusal(404, f"no handoff {given.name}; /v1/handoffs lists them")
        return ApiReply(200, found.encode("utf-8", "replace"), MARKDOWN)

    def fits(self, given: ApiInput) -> ApiReply:
        """Whether a task of a given size fits into a session."""
        session = given.query.get("session", "")
        if not session:
            raise ApiRefusal(400, "`session` in the query is missing")
        return _json(self.daemon.fits(session, given.number("tokens")))

    def pause(self, given: ApiInput) -> ApiReply:
        """Pauses a session, a project or everything."""
        return _message_reply(self.daemon.pause(given.text("what", default="")))

    def unpause(self, given: ApiInput) -> ApiReply:
        """Ends a pause."""
        return _message_reply(self.daemon.unpause(given.text("what", default="")))

    def handoff(self, given: ApiInput) -> ApiReply:
        """Starts a handoff now."""
        session, retry = given.text("session"), given.fields().get("retry", False)
        if not isinstance(retry, bool):
            raise ApiRefusal(400, "`retry` in the body must be true or false")
        return _message_reply(self.daemon.handoff(session, retry=retry))

    def cancel(self, given: ApiInput) -> ApiReply:
        """Cancels a handoff or a resume."""
        return _message_reply(self.daemon.cancel(given.text("session")))

    def yes(self, given: ApiInput) -> ApiReply:
        """Allows what was asked."""
        return _message_reply(self.daemon.yes(given.text("what", default="")))

    def hook(self, given: ApiInput) -> ApiReply:
        """What the hook's client prints; its exit code is in a header."""
        body, exit_code = self.daemon.hook(given.fields())
        return ApiReply(200, body, JSON, (("x-exit", str(exit_code)),))

    def statusline(self, given: ApiInput) -> ApiReply:
        """What the status line's client prints."""
        return ApiReply(200, self.daemon.statusline(given.fields()), TEXT)


Handle = Callable[[Api, ApiInput], ApiReply | ApiStream]

ROUTES: dict[str, dict[str, Handle]] = {
    "/metrics": {"GET": Api.metrics},
    "/v1/cancel": {"POST": Api.cancel},
    "/v1/changes": {"GET": Api.changes},
    "/v1/events": {"GET": Api.events},
    "/v1/figures": {"GET": Api.figures},
    "/v1/fits": {"GET": Api.fits},
    "/v1/handoff": {"POST": Api.handoff},
    "/v1/handoffs": {"GET": Api.handoffs},
    "/v1/handoffs/{id}": {"GET": Api.handoff_text},
    "/v1/hook": {"POST": Api.hook},
    "/v1/pause": {"POST": Api.pause},
    "/v1/sessions": {"GET": Api.sessions},
    "/v1/sessions/{id}": {"GET": Api.session},
    "/v1/status": {"GET": Api.status},
    "/v1/statusline": {"POST": Api.statusline},
    "/v1/unpause": {"POST": Api.unpause},
    "/v1/yes": {"POST": Api.yes},
}


def find(path: str) -> tuple[str | None, str]:
    """The route of a path, and the name in it."""
    if path in ROUTES:
        return path, ""
    folder, _, name = path.rpartition("/")
    route = folder + "/{id}"
    return (route, unquote(name)) if name and route in ROUTES else (None, "")


def note_dict(note: Note) -> dict[str, Any]:
    """A note in its documented form."""
    return {
        "schema": 1,
        "seq": note.seq,
        "at": note.at,
        "kind": note.kind,
        "agent": note.agent,
        "session_id": note.session_id,
        "project": note.project,
        "data": {k: v for k, v in note.data.items() if k not in _OWN.get(note.kind, ())},
    }


def encode(value: object) -> bytes:
    """JSON on one line, without a character that a terminal would act on."""
    try:
        return escape_json(msgspec.json.encode(value).decode()).encode()
    except (UnicodeEncodeError, OverflowError):  # a path whose name is not UTF-8
        return to_json(value).encode()


def _json(value: object) -> ApiReply:
    return ApiReply(200, encode(value) + b"\n")


def _message_reply(line: str) -> ApiReply:
    return _json({"said": line})


def _line(text: str) -> str:
    return " ".join(text.split())[:_MAX_LINE]


def _count(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise ApiRefusal(400, f"{what} must be a non-negative whole number")
    return int(text)
