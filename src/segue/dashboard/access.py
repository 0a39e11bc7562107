"""Lets one browser of this user see the pages, and nobody else.

The printed URL has a token that works once and is exchanged for a cookie, which scripts and other
sites cannot read. Any other request without that cookie gets 403 and no explanation beyond how to
open the dashboard. Changes need a POST from these pages: its Origin is checked, and its form has a
second token.
"""

import hmac
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_KEPT_S = 30 * 86_400
_METHODS = ("GET", "HEAD", "POST")
# The page goes on by itself, without a redirect: to the browser, a redirect still comes from the
# site or program that opened the link, so it would not send a SameSite=Strict cookie.
_WELCOME = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>segue</title>'
    '<link rel="icon" href="/static/icon.svg"><meta http-equiv="refresh" content="0;url=/"></head>'
    '<body><p><a href="/">Open the dashboard</a></p></body></html>'
)
_CLOSED = (
    "segue dashboard: access denied. Open the URL that `segue dashboard` printed; it"
    " works once. For a new one, start `segue dashboard` again.\n"
)


class Keys:
    """The secrets of one dashboard process; a new process has new ones."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.token: str | None = secrets.token_urlsafe(32)  # None: already used
        self.cookie = secrets.token_urlsafe(32)
        self.cookie_name = f"segue-{port}"
        self.csrf = hmac.new(secrets.token_bytes(32), self.cookie.encode(), sha256).hexdigest()

    @property
    def url(self) -> str:
        """The URL to print. Valid until `take` has used up the token."""
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    def hosts(self) -> tuple[str, ...]:
        """The allowed Host headers. Any other name may be an attack by DNS rebinding."""
        return (f"127.0.0.1:{self.port}", f"localhost:{self.port}")

    def take(self, token: str) -> bool:
        """Whether this is the unused token. If so, it is now used up."""
        if self.token is None or not _same(token, self.token):
            return False
        self.token = None
        return True

    def knows(self, header: str) -> bool:
        """Whether this Cookie header has the dashboard's cookie."""
        try:
            found = SimpleCookie(header).get(self.cookie_name)
        except CookieError:
            return False
        return found is not None and _same(found.value, self.cookie)

    def is_form_of_ours(self, csrf: str) -> bool:
        """Whether a form with this token comes from the dashboard's own pages."""
        return _same(csrf, self.csrf)


class Gate:
    """The ASGI app in front of the pages: passes on only requests from the user's browser, and adds
    the security headers to every response."""

    def __init__(self, app: App, keys: Keys) -> None:
        self.app, self.keys = app, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a refused request itself, and ignores anything but HTTP."""
        if scope["type"] != "http":
            return
        status, text, more = self._judge(scope)
        if status == 0:
            await self.app(scope, receive, _with_headers(send))
            return
        kind = "text/html; charset=utf-8" if text.startswith("<") else "text/plain; charset=utf-8"
        body = text.encode()
        headers = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body)), *more]
        answer = _with_headers(send)
        await answer({"type": "http.response.start", "status": status, "headers": headers})
        await answer({"type": "http.response.body", "body": body})

    def _judge(self, scope: Scope) -> tuple[int, str, list[tuple[bytes, bytes]]]:
        """The status, body and additional headers of the response; status 0 passes the request on
        to the app."""
        headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            key, text = name.decode("latin-1").lower(), value.decode("latin-1")
            headers[key] = f"{headers[key]}; {text}" if key in headers else text
        if headers.get("host", "") not in self.keys.hosts():
            return 421, "segue dashboard: unknown host name\n", []
        if scope["method"] not in _METHODS:
            return 405, "segue dashboard: GET and POST only\n", [(b"allow", b"GET, HEAD, POST")]
        origin = headers.get("origin")
        own = f"http://{headers['host']}"
        if origin not in (None, own) or (scope["method"] == "POST" and origin is None):
            return 403, "segue dashboard: requests from other sites are refused\n", []
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"), max_num_fields=20)
        if scope["path"] == "/" and scope["method"] == "GET" and "token" in query:
            if self.keys.take(query["token"][0]):
                cookie = (
                    f"{self.keys.cookie_name}={self.keys.cookie}; HttpOnly; SameSite=Strict;"
                    f" Path=/; Max-Age={_KEPT_S}"
                )
                return 200, _WELCOME, [(b"set-cookie", cookie.encode())]
            if self.keys.knows(headers.get("cookie", "")):
                return 200, _WELCOME, []
        if not self.keys.knows(headers.get("cookie", "")):
            return 403, _CLOSED, []
        return 0, "", []


def _with_headers(send: Send) -> Send:
    async def answer(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            other_headers = [
                h for h in message.get("headers", []) if h[0].decode().lower() not in HEADERS
            ]
            message = {**message, "headers": [*other_headers, *own]}
        await send(message)

    return answer


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
