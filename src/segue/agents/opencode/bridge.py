"""`opencode serve` as a process that takes and writes JSON lines.

    python -I -S bridge.py [--session|--model|--agent|--variant X]… -- program [flags]

Takes `{"type":"prompt","text":…,"key":…}` and `{"type":"abort"}`; a key comes back as the
`metadata.segue` of the prompt's part. Writes the events of its session, and of the sessions below
it, as the server sent them, and records of its own in the same form, `{type, properties}`:

- `bridge.session` {id, version}: the session is open
- `bridge.model` {provider, model, window, output}: before the first usage of a model
- `bridge.long_wait` {sessionID, message, until, wait_s}: the agent waits for more than a minute
- `bridge.idle` {}: the server is idle, and did not report it
- `bridge.error` {about, status, message, key}: the server refused a request
- `bridge.closing` {while}: the bridge ends the agent while it waits ("retry") or asks ("asked")
- `bridge.server_exited` {exit_code, was_up}

At the end of its input it waits until the session is idle, or ends it where it would wait for the
user or for longer than a minute. Exit code: 0 if the last turn ended well, else 1; 128 + the
signal's number after a signal.

All in one file, because it runs alone, without the package.
"""

import base64
import hashlib
import http.client
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from typing import Any
from urllib.parse import urlsplit

START_S = 180.0  # a first start may migrate a database, or look for packages in vain for 70 s
CALL_S = 60.0
ABORT_S = 5.0  # for an abort at the end, whose answer matters to nobody
GRACE_S = 3.0
LOOK_S = 5.0  # how often the server is asked whether it is still busy
QUIET_LOOKS = 12  # how many looks may find the server idle before it starts on a prompt
SILENT_S = 60.0  # the event stream has a heartbeat every 10 s
LONG_S = 60.0
TRIES = 3
USER = "opencode"
HEAD = ("id", "sessionID", "parentID", "role", "mode", "agent", "summary", "providerID", "modelID")
# As in `opencode run`: nobody is there to answer.
DENIED = [
    {"permission": name, "action": "deny", "pattern": "*"}
    for name in ("question", "plan_enter", "plan_exit")
]

JSON = dict[str, Any]


class EndedError(Exception):
    """The server has ended, with this exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class RefusedError(Exception):
    """The server refused the request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Bridge:
    """One server, one session."""

    def __init__(self, options: dict[str, str], command: list[str]) -> None:
        self.options, self.command = options, command
        # Reentrant, because the signal handler uses it too.
        self.inbox: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.password = os.urandom(24).hex()
        self.server: subprocess.Popen[bytes] | None = None
        self.address = ("", 0)
        self.session = ""
        self.family: set[str] = set()  # the session and its sub-sessions
        self.early: list[tuple[str, Any]] = []  # what arrived before the session was open
        self.opened_ms = 0.0
        self.models: set[tuple[str, str]] = set()
        self.limits: JSON | None = None
        self.pending: set[str] = set()  # prompts that were sent, but not yet seen in the events
        self.is_busy = False
        self.is_closing = False  # the input has ended
        self.has_failed = False
        self.waits: set[str] = set()  # sessions in a long wait
        self.asked: set[str] = set()  # questions to the user
        self.quiet_looks = 0
        self.passed_on: dict[str, str] = {}  # by message or part: what was last passed on
        self.again: set[str] = set()  # passed on after a gap; may still arrive as events
        self.prompts = 0
        self.signals = 0
        self.is_calling = False
        self.events: threading.Thread | None = None

    # Lifetime

    def run(self) -> int:
        """Runs until the server is gone, and returns the exit code."""
        code = 1
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._signalled)
        try:
            self._start()
            self._open()
            while True:
                # After an error, there may be nothing else.
                is_lost = self.has_failed and self.pending
                self._take(*self._next(1.0 if is_lost else LOOK_S))
        except EndedError as ended:
            code = ended.code
            if code > 128 and (self.is_busy or self.pending):
                self._leave()
        except BrokenPipeError:
            self._leave()  # nobody is listening
        finally:
            self._end_server()
        return code

    def _start(self) -> None:
        env = {
            **os.environ,
            # otherwise any user on this machine could use it
            "OPENCODE_SERVER_PASSWORD": self.password,
            "OPENCODE_SERVER_USERNAME": USER,
        }
        argv = [self.command[0], "serve", "--port", "0", "--hostname", "127.0.0.1"]
        try:
            self.server = subprocess.Popen(  # noqa: S603 - the agent itself
                [*argv, *self.command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                env=env,
                # Signals for us must not reach it, because we end its turn first.
                process_group=0,
            )
        except OSError as error:
            self._tell("bridge.error", about="server", message=str(error))
            raise EndedError(1) from None
        for work in (self._read_input, self._read_server, self._wait_for_server):
            threading.Thread(target=work, daemon=True).start()
        until = time.monotonic() + START_S
        while not self.address[1]:
            kind, what = self._next(until - time.monotonic())
            if kind == "nothing":
                self._tell("bridge.error", about="server", message="opencode serve does not start")
                raise EndedError(1)
            self._take(kind, what)

    def _open(self) -> None:
        self.events = threading.Thread(target=self._read_events, daemon=True)
        self.events.start()
        found: JSON = {}
        try:
            version = self._call("GET", "/global/health").get("version")
            until = time.monotonic() + START_S
            while not any(kind == "connected" for kind, _ in self.early):
                if time.monotonic() > until:
                    raise TimeoutError("opencode serve has no events")
                self._take(*self._next(LOOK_S))
            if ident := self.options.get("session"):
                found = self._call("GET", f"/session/{ident}")
            else:
                found = self._call("POST", "/session", {"permission": DENIED}, START_S)
        except (OSError, http.client.HTTPException, RefusedError) as error:
            self._refused("session", error)
            raise EndedError(1) from None
        self.opened_ms = time.time() * 1000
        self.session = str(found.get("id"))
        self.family.add(self.session)
        self._tell("bridge.session", id=self.session, version=version)
        early, self.early = self.early, []
        for kind, what in early:
            self._take(kind, what)

    def _end_server(self) -> None:
        """Ends the server, and passes on its last output."""
        server = self.server
        if server is None:
            return
        for end in (server.terminate, server.kill):
            if server.poll() is None:
                end()
            try:
                server.wait(GRACE_S)
                break
            except subprocess.TimeoutExpired:
                continue
        if self.events is not None:
            self.events.join(1.0)
        try:
            while True:
                kind, what = self.inbox.get_nowait()
                if kind == "event" and self.session:
                    self._event(what)
        except (queue.Empty, BrokenPipeError):
            return

    def _signalled(self, number: int, frame: object) -> None:
        self.signals += 1
        if self.signals > 1:  # in a hurry
            if self.server is not None:
                self.server.kill()
            os._exit(128 + number)
        self.inbox.put(("signal", number))
        if self.is_calling:
            raise EndedError(128 + number)

    # Threads: each only puts what it reads into the inbox

    def _read_input(self) -> None:
        for line in sys.stdin.buffer:
            self.inbox.put(("line", line))
        self.inbox.put(("end", None))

    def _read_server(self) -> None:
        assert self.server is not None
        assert self.server.stdout is not None
        for line in self.server.stdout:
            os.write(2, line)
            before, _, url = line.decode("utf-8", "replace").strip().rpartition(" ")
            if before.endswith("listening on"):
                self.inbox.put(("listens", url))

    def _wait_for_server(self) -> None:
        assert self.server is not None
        self.inbox.put(("exited", self.server.wait()))

    def _read_events(self) -> None:
        """Reads the event stream, and reconnects if it breaks off while the server is alive."""
        assert self.server is not None
        while self.server.poll() is None:
            connection = self._connect(SILENT_S)
            try:
                connection.request("GET", "/event", headers=self._headers())
                answer = connection.getresponse()
                rest = b""
                while answer.status == 200 and (data := answer.read1(1 << 20)):
                    *lines, rest = (rest + data).split(b"\n")
                    for line in lines:
                        if line.startswith(b"data:"):
                            self.inbox.put(("event", line[5:].strip()))
            except (OSError, http.client.HTTPException, ValueError):
                pass
            finally:
                connection.close()
            time.sleep(0.2)  # not as fast as possible, in case it refuses

    # The main thread

    def _next(self, limit_s: float) -> tuple[str, Any]:
        try:
            return self.inbox.get(timeout=max(0.01, limit_s))
        except queue.Empty:
            return "nothing", None

    def _take(self, kind: str, what: Any) -> None:
        if kind == "listens":
            place = urlsplit(what)
            self.address = (place.hostname or "127.0.0.1", place.port or 0)
        elif kind == "exited":
            self._tell("bridge.server_exited", exit_code=what, was_up=bool(self.session))
            raise EndedError(1)
        elif kind == "signal":
            raise EndedError(128 + what)
        elif kind == "event" and b'"server.connected"' in what[:200]:
            if self.session:
                self._catch_up()
            else:
                self.early.append(("connected", None))
        elif not self.session:
            if kind != "nothing":
                self.early.append((kind, what))
        elif kind == "event":
            self._event(what)
        elif kind == "line":
            self._line(what)
        elif kind == "end":
            self.is_closing = True
        if self.session:
            if kind == "nothing":
                self._look()
            self._close()

    def _line(self, line: bytes) -> None:
        try:
            order = json.loads(line)
            kind = order["type"]
        except (ValueError, TypeError, KeyError):
            self._tell("bridge.error", about="input", message="a line that is not a command")
            return
        if kind == "prompt":
            self.prompts += 1
            self._prompt(str(order.get("text", "")), str(order.get("key") or self.prompts))
        elif kind == "abort":
            try:
                self._call("POST", f"/session/{self.session}/abort", {})
            except (OSError, http.client.HTTPException, RefusedError) as error:
                self._refused("abort", error)
        else:
            self._tell("bridge.error", about="input", message=f"unknown command: {kind}")

    def _prompt(self, text: str, key: str) -> None:
        body: JSON = {"parts": [{"type": "text", "text": text, "metadata": {"segue": key}}]}
        if model := self.options.get("model"):
            provider, _, name = model.partition("/")
            body["model"] = {"providerID": provider, "modelID": name}
        body |= {name: self.options[name] for name in ("agent", "variant") if name in self.options}
        self.pending.add(key)
        self.has_failed = False
        self.quiet_looks = 0
        failure: Exception | None = None
        for _ in range(TRIES):
            try:
                if failure is None or not self._has(key):
                    self._call("POST", f"/session/{self.session}/prompt_async", body)
                return
            except RefusedError as error:
                failure = error
                break
            except (OSError, http.client.HTTPException) as error:
                failure = error  # it may have arrived all the same
        self.pending.discard(key)
        self.has_failed = True
        self._refused("prompt", failure, key)

    def _has(self, key: str) -> bool:
        """Whether a prompt has arrived."""
        found = self._call("GET", f"/session/{self.session}/message?limit=10")
        return any(_key(part) == key for message in found for part in message.get("parts", []))

    def _event(self, raw: bytes) -> None:
        """Passes an event on if it is about this session."""
        try:
            record = json.loads(raw)
            kind, what = record["type"], record["properties"]
        except (ValueError, TypeError, KeyError):
            return
        info = _dict(what, "info")
        part = _dict(what, "part")
        ident = what.get("sessionID") or info.get("sessionID") or part.get("sessionID")
        if kind.startswith("session.") and info:
            ident = info.get("id")
            if info.get("parentID") in self.family:
                self.family.add(str(ident))
        if ident not in self.family and not (kind == "session.error" and ident is None):
            return
        self.quiet_looks = 0
        if kind in ("message.updated", "message.part.updated"):
            state = _hash(info or part)
            if state in self.again:
                self.again.discard(state)
                return
            self.passed_on[str((info or part).get("id"))] = state
        if info.get("role") == "assistant":
            self._model(info)
        _write(raw)
        self._note(kind, what, str(ident), info, part)

    def _note(self, kind: str, what: JSON, ident: str, info: JSON, part: JSON) -> None:
        """Updates the state from an event."""
        is_main = ident == self.session
        if kind == "message.part.updated" and (key := _key(part)) in self.pending:
            self.pending.discard(key)
            self.is_busy = True
        elif kind == "message.updated" and is_main and info.get("error"):
            self.has_failed = True
        elif kind == "message.updated" and is_main and info.get("finish") == "stop":
            self.has_failed = False
        elif kind == "session.error" and ident in (self.session, "None"):
            self.has_failed = True
        elif kind == "session.status":
            status = _dict(what, "status")
            self.waits.discard(ident)
            if status.get("type") == "retry":
                self._retry(status, ident)
            elif is_main:
                self.is_busy = status.get("type") != "idle"
        elif kind == "session.idle" and is_main:
            self.is_busy = False
        elif kind in ("permission.asked", "question.asked"):
            self.asked.add(str(what.get("id")))
        elif kind.startswith(("permission.repl", "question.re")):
            self.asked.discard(str(what.get("requestID")))

    def _retry(self, status: JSON, ident: str) -> None:
        until = status.get("next")
        wait_s = until / 1000 - time.time() if isinstance(until, int | float) else 0.0
        if wait_s > LONG_S:
            self.waits.add(ident)
            self._tell(
                "bridge.long_wait",
                sessionID=ident,
                message=status.get("message"),
                until=until,
                wait_s=round(wait_s, 3),
            )

    def _model(self, info: JSON) -> None:
        """Reports the window of a model, before its first usage."""
        provider, name = str(info.get("providerID")), str(info.get("modelID"))
        if (provider, name) in self.models:
            return
        self.models.add((provider, name))
        if self.limits is None:
            try:
                found = self._call("GET", "/config/providers").get("providers", [])
                self.limits = {p["id"]: p["models"] for p in found}
            except (OSError, http.client.HTTPException, RefusedError, KeyError, TypeError):
                return
        limit = _dict(_dict(_dict(self.limits, provider), name), "limit")
        # If both are known, the input is what fills up.
        window = limit.get("input") or limit.get("context")
        self._tell(
            "bridge.model", provider=provider, model=name, window=window, output=limit.get("output")
        )

    def _catch_up(self) -> None:
        """The event stream was interrupted: passes on what changed in the meantime."""
        try:
            messages = self._call("GET", f"/session/{self.session}/message?limit=100")
            for message in messages:
                info = message["info"]
                if info.get("time", {}).get("created", 0) < self.opened_ms - 1000:
                    continue
                # In the usual order: the message, its parts, how it ended.
                if info.get("id") not in self.passed_on:
                    head = {name: info[name] for name in HEAD if name in info}
                    self._missed("message.updated", "info", head)
                for part in message["parts"]:
                    self._missed("message.part.updated", "part", part)
                self._missed("message.updated", "info", info)
            for kind in ("permission", "question"):
                for asked in self._call("GET", f"/{kind}"):
                    if asked.get("id") not in self.asked:
                        record = {"type": f"{kind}.asked", "properties": asked}
                        self._event(json.dumps(record).encode())
            if self.is_busy and not self._is_at_work() and not self.pending:
                self.waits.clear()
                self._tell("bridge.idle")
        except (OSError, http.client.HTTPException, RefusedError, KeyError, TypeError) as error:
            self._refused("events", error)

    def _missed(self, kind: str, name: str, state: JSON) -> None:
        known = _hash(state)
        if self.passed_on.get(str(state.get("id"))) != known:
            what = {"sessionID": self.session, name: state}
            self._event(json.dumps({"type": kind, "properties": what}).encode())
            self.again.add(known)

    def _is_at_work(self) -> bool:
        """Whether the server says that the session is busy; False if it does not answer, because
        it is about to be ended."""
        try:
            self.is_busy = self.session in self._call("GET", "/session/status")
        except (OSError, http.client.HTTPException, RefusedError):
            return False
        return self.is_busy

    def _look(self) -> None:
        """Asks the server whether it is idle, in case it did not report that: no event follows some
        errors, such as an unknown agent."""
        if not self.is_busy and not self.pending:
            return
        try:
            status = self._call("GET", "/session/status")
        except (OSError, http.client.HTTPException, RefusedError):
            return  # it is dead, which will be noticed; or it is too busy to answer
        if self.session in status:
            self.quiet_looks = 0
            return
        self.quiet_looks += 1
        if self.quiet_looks > (1 if self.has_failed else QUIET_LOOKS):
            self.is_busy = False
            self.has_failed |= bool(self.pending)
            self.pending.clear()
            self._tell("bridge.idle")

    def _close(self) -> None:
        """Ends the server if the input has ended and nothing more can follow."""
        if not self.is_closing or self.pending:
            return
        if self.asked or self.waits:
            self._tell("bridge.closing", **{"while": "asked" if self.asked else "retry"})
            self._leave()
            raise EndedError(1)
        if not self.is_busy and not self._is_at_work():
            raise EndedError(int(self.has_failed))

    def _leave(self) -> None:
        """Ends the turn, and its tools with it."""
        try:
            self._call("POST", f"/session/{self.session}/abort", {}, ABORT_S)
        except (OSError, http.client.HTTPException, RefusedError):
            return

    # The server

    def _connect(self, limit_s: float) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(*self.address, timeout=limit_s)

    def _headers(self) -> dict[str, str]:
        credentials = base64.b64encode(f"{USER}:{self.password}".encode()).decode()
        return {"Authorization": f"Basic {credentials}", "Content-Type": "application/json"}

    def _call(self, method: str, path: str, body: Any = None, limit_s: float = CALL_S) -> Any:
        connection = self._connect(limit_s)
        data = None if body is None else json.dumps(body).encode()
        self.is_calling = not self.signals
        try:
            connection.request(method, path, data, self._headers())
            answer = connection.getresponse()
            content = answer.read()
        finally:
            self.is_calling = False
            connection.close()
        if answer.status >= 400:
            raise RefusedError(answer.status, _message(content))
        try:
            return json.loads(content) if content else None
        except ValueError:
            raise RefusedError(answer.status, _message(content)) from None

    def _refused(self, about: str, error: Exception | None, key: str = "") -> None:
        status = error.status if isinstance(error, RefusedError) else None
        message = str(error) or type(error).__name__
        self._tell("bridge.error", about=about, status=status, message=message, key=key)

    def _tell(self, kind: str, **what: Any) -> None:
        _write(json.dumps({"type": kind, "properties": what}).encode())


def _write(line: bytes) -> None:
    rest = memoryview(line + b"\n")
    while rest:
        rest = rest[os.write(1, rest) :]


def _dict(value: Any, key: str) -> JSON:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _key(part: JSON) -> str:
    found = _dict(part, "metadata").get("segue")
    return found if isinstance(found, str) else ""


def _hash(state: JSON) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _message(body: bytes) -> str:
    text = body.decode("utf-8", "replace")
    try:
        error = json.loads(text)
        return str(_dict(error, "data").get("message") or error.get("message") or text)
    except (ValueError, AttributeError):
        return text


def main(argv: list[str]) -> int:
    """Runs the bridge; returns the exit code. Options come in pairs, before `--` and the
    command."""
    place = argv.index("--") if "--" in argv else len(argv)
    named, command = argv[:place], argv[place + 1 :]
    pairs = zip(named[::2], named[1::2], strict=False)
    options = {name.removeprefix("--"): value for name, value in pairs}
    if not command or len(named) % 2 or set(options) - {"session", "model", "agent", "variant"}:
        sys.stderr.write("usage: opencode.py [--session|--model|--agent|--variant X] -- program\n")
        return 2
    return Bridge(options, command).run()


if __name__ == "__main__":
    # Threads still wait for the input and the server, but nothing is left for them to do.
    status = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(status)
