"""The tools of the MCP server: what an agent can ask about its own session, and have done for it.

A running daemon answers. Without one, everything works the same from the session files, except for
requesting a handoff. Sessions have their documented form (docs/sessions.md).
"""

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from segue.core.handoffs import document as handoff
from segue.core.handoffs.document import MAX_BYTES
from segue.core.names import SessionName, matching
from segue.core.policy import Policy
from segue.core.secrets.redact import redact
from segue.core.sessions.forecasts.gate import Sized, size_of_prompt, stated
from segue.core.sessions.types import SessionState, fit_in
from segue.core.terminals.visible import one_line
from segue.errors import InputError, SegueError
from segue.system import clock
from segue.system.config.policies import Policies
from segue.system.files import documents as handoffs
from segue.system.files import files, state
from segue.system.process import procfs
from segue.views import tables
from segue.views.machine import RECENT_S, Machine, list_sessions, project_costs, with_machine
from segue.watch.server.remote import NoDaemon, Remote

NO_DAEMON = (
    "segue watch is not running, so this session cannot be handed over: start it with"
    " `segue watch`, or write the document yourself with write_handoff"
)

_MAX_SESSIONS = 100
_MAX_TOKENS = 10**12
_MAX_REASON = 300  # characters
_PATIENCE_S = 3.0  # how long a request to the daemon may take
_DEPTH = 64  # how many ancestors of the server to check
_LIVE = frozenset(state.value for state in SessionState if state.is_live)
_AWAITED = frozenset({"waiting", "asking", "asked"})  # steps at which the daemon waits for it
_SHORT = (
    *("agent", "session_id", "cwd", "model", "state", "context", "last_activity"),
    *("run", "run_state", "handed_over_to"),
)

Chosen = Literal["named", "parent", "newest_live", "newest"]
_HOW: Mapping[Chosen, str] = {
    "named": "as named",
    "parent": "the one whose agent started this server",
    "newest_live": "the newest live one of this folder",
    "newest": "the newest one of this folder; none is live",
}

Found = TypeVar("Found")
SessionJson = dict[str, Any]  # a session, as `segue status --json` has it


class McpAnswer(NamedTuple):
    """An answer: a line or two for the model, and the same as data."""

    text: str
    data: dict[str, Any]


class Picked(NamedTuple):
    """The session that an answer is about, and how it was chosen."""

    session: SessionJson
    chosen: Chosen

    @property
    def label(self) -> str:
        """The agent and the session's id."""
        return f"{self.session['agent']} session {one_line(str(self.session['session_id']))}"

    @property
    def how(self) -> str:
        """The choice in a sentence, so that a wrong one is noticed."""
        return f"Session: {one_line(str(self.session['session_id']))} ({_HOW[self.chosen]})."


class Answers:
    """The tools, for a server that an agent started in `folder`. Nothing is cached between calls.
    Every tool raises SegueError with one line if it cannot answer."""

    def __init__(
        self,
        folder: str = "",
        env: Mapping[str, str] | None = None,
        *,
        pid: int = 0,
        remote: Callable[[], Remote] = lambda: Remote(state.socket_path(), timeout_s=_PATIENCE_S),
    ) -> None:
        self._folder = os.path.realpath(folder or os.getcwd())
        self._env = os.environ if env is None else env
        self._pid = pid or os.getpid()
        self._remote = remote

    def context_status(self, session: str = "") -> McpAnswer:
        """How full a session is, how fast it grows, and when its handoff is due."""
        picked = self._pick(session)
        found = picked.session
        text = f"{picked.label}: {_fullness(found)}. {picked.how}"
        return McpAnswer(text, {"session": found, "chosen": picked.chosen})

    def sessions(self) -> McpAnswer:
        """Live sessions, then others of the last day."""
        found, parents = self._recent(), self._ancestors()
        listed = [
            {key: one.get(key) for key in _SHORT} | {"is_mine": one.get("pid") in parents}
            for one in found[:_MAX_SESSIONS]
        ]
        lines = [
            one_line(f"{one['session_id']}  {one['agent']}  {_fullness(one)}")
            for one in listed[:20]
        ]
        more = f"\nand {len(found) - len(lines)} more" if len(found) > len(lines) else ""
        return McpAnswer("\n".join(lines) + more or "no session", {"sessions": listed})

    def fits(
        self, tokens: int | None = None, prompt: str | None = None, session: str = ""
    ) -> McpAnswer:
        """Whether a task of this size, or of this prompt, may start in a session. Raises InputError
        unless exactly one of `tokens` and `prompt` is given."""
        if (tokens is None) == (not prompt):
            raise InputError("pass either `tokens` or `prompt`")
        if tokens is not None and not 0 < tokens < _MAX_TOKENS:
            raise InputError("`tokens` must be above 0")
        picked = self._pick(session)
        sized = stated(tokens) if tokens is not None else self._sized(prompt or "", picked)
        fit = self._fit(picked, sized.tokens)
        verdict = "yes" if fit["fits"] else "no"
        by = "" if tokens is not None else f" Estimated at {sized.tokens:,} tokens {sized.why}."
        fit |= {"estimated_by": sized.source, "chosen": picked.chosen}
        return McpAnswer(f"{verdict}: {fit['why']}{by} {picked.how}", fit)

    def write_handoff(self, text: str, session: str = "") -> McpAnswer:
        """Saves a handoff document, without secrets: where the daemon waits for it, otherwise under
        a new name. Without a known session, it is saved for this folder. Raises InputError if it is
        not a complete document."""
        clean, hidden = redact(text)
        if len(clean.encode("utf-8", "replace")) > MAX_BYTES:
            raise InputError(f"the document is larger than {MAX_BYTES:,} bytes")
        if why := handoff.check(clean):
            raise InputError(f"not saved: {why}. Write the whole document again.")
        picked = self._pick_or_none(session)
        found: SessionJson = picked.session if picked else {}
        project = self._project(found, is_named=bool(session))
        folder = self._handoffs_of(project, found)
        name = self._awaited(found, folder)
        is_awaited = bool(name)
        name = name or handoff.name(clock.now(), f"h-{secrets.token_hex(4)}")
        path = handoffs.write(folder, name, clean if clean.endswith("\n") else clean + "\n")
        is_told = self._tell(found, path)
        notes = [f"Saved as {path}."]
        if hidden:
            notes.append(f"{hidden} that looked like secrets were removed.")
        notes.append(
            "segue takes over from here; do nothing more."
            if is_awaited
            else "A new session can continue from it once it is told to read it."
        )
        notes.append(picked.how if picked else "No session of this folder is known.")
        data = {
            "file": str(path),
            "name": name,
            "uri": f"segue://handoffs/{name}",
            "size_bytes": path.stat().st_size,
            "secrets_removed": hidden,
            "awaited": is_awaited,
            "daemon_told": is_told,
            "session_id": found.get("session_id"),
            "chosen": picked.chosen if picked else None,
        }
        return McpAnswer(" ".join(notes), data)

    def request_handoff(self, reason: str, session: str = "") -> McpAnswer:
        """Asks the daemon to hand over a session now. Raises InputError if no daemon is running."""
        picked = self._pick(session)
        self._project(picked.session, is_named=bool(session))  # raises if it is another project's
        why = " ".join(redact(reason)[0].split())[:_MAX_REASON]
        if not why:
            raise InputError("give a reason for the handoff")
        asked = {"session": picked.session["session_id"], "reason": why}
        try:
            answer = self._remote().post("/v1/handoff", asked)
        except NoDaemon:
            raise InputError(NO_DAEMON) from None
        line = str(answer.get("said", "")) if isinstance(answer, dict) else ""
        data = {"said": line, "session_id": asked["session"], "chosen": picked.chosen}
        return McpAnswer(f"{line} {picked.how}".strip(), data)

    def documents(self) -> list[handoffs.Document]:
        """The handoffs of this folder's project, the newest first."""
        return handoffs.listed(self._handoffs_of(self._folder, {}))

    def document(self, name: str) -> str:
        """The text of one of them, by its name."""
        return handoffs.read(self._handoffs_of(self._folder, {}), name)

    # Which session

    def _pick(self, name: str) -> Picked:
        picked = self._pick_or_none(name)
        if picked is None:
            raise InputError(f"no session in {self._folder}; name one; `sessions` lists them")
        return picked

    def _pick_or_none(self, name: str) -> Picked | None:
        if name:
            if "/" in name or "\\" in name or name.startswith((".", "~")):
                raise InputError("name a session by its id or the beginning of it, not by a path")
            found = matching(name, self._recent(), _name) or matching(name, self._all(), _name)
            if len(found) == 1:
                return Picked(found[0], "named")
            if not found:
                raise InputError(f"no session {name[:80]!r}; `sessions` lists them")
            ids = ", ".join(one_line(str(one["session_id"])) for one in found[:5])
            raise InputError(f"{name[:80]!r} may be one of {len(found)}: {ids}")
        return pick(self._recent(), self._ancestors(), self._folder)

    def _recent(self) -> list[SessionJson]:
        """The live sessions, then others of the last day, each the newest first."""
        found = self._daemon("/v1/sessions")
        listed = found.get("sessions") if found else None
        if not isinstance(listed, list):
            listed = self._look(lambda m: _dicts(m, m.now - RECENT_S))
        return sorted(listed, key=_rank, reverse=True)

    def _all(self) -> list[SessionJson]:
        return self._look(_dicts)

    def _look(self, work: Callable[[Machine], Found]) -> Found:
        machine, found = with_machine(work)
        machine.index.close()
        return found

    def _ancestors(self) -> list[int]:
        """The process ids of this server's ancestors, the nearest first."""
        system, pid, found = procfs.system(), self._pid, []
        for _ in range(_DEPTH):
            facts = system.facts(pid)
            if facts is None or facts.parent < 1:  # in a container, process 1 may be the agent
                break
            pid = facts.parent
            found.append(pid)
        return found

    # What fits

    def _fit(self, picked: Picked, tokens: int) -> dict[str, Any]:
        name = str(picked.session["session_id"])
        found = self._daemon("/v1/fits", session=name, tokens=tokens)
        if found and isinstance(found.get("fits"), bool) and isinstance(found.get("why"), str):
            return found
        session = picked.session

        def work(machine: Machine) -> dict[str, Any]:
            own = (s for s in list_sessions(machine) if s.session_id == name)
            known = next((s for s in own if s.path == session.get("path")), None)
            fit = fit_in(known, tokens) if known is not None else None
            if known is None or fit is None:
                raise InputError(
                    f"session {name}: its size is unknown: no reply states its usage yet"
                )
            return {
                "fits": fit.ok,
                "tokens": tokens,
                "room_tokens": fit.room_tokens,
                "because": fit.because,
                "why": fit.why,
                "session": tables.as_dict(known),
            }

        return self._look(work)

    def _sized(self, prompt: str, picked: Picked) -> Sized:
        name = picked.session["session_id"]

        def work(machine: Machine) -> Sized:
            listed = list_sessions(machine)
            known = next((one for one in listed if one.session_id == name), None)
            costs = project_costs(machine, listed, known) if known is not None else []
            return size_of_prompt(len(prompt), costs)

        return self._look(work)

    # Documents

    def _project(self, found: SessionJson, *, is_named: bool) -> str:
        """The session's folder. Raises InputError for a named session that is neither in this
        server's folder, above it nor below it: agents have no business in another project."""
        cwd = files.real(found["cwd"]) if found.get("cwd") else ""
        if not cwd:
            return self._folder
        related = os.path.commonpath((cwd, self._folder)) in (cwd, self._folder)
        if is_named and not related:
            raise InputError(f"session {found['session_id']} belongs to another project")
        return cwd

    def _handoffs_of(self, project: str, found: SessionJson) -> Path:
        policy = self._policy(found | {"cwd": project})
        return handoffs.folder_of(project, policy.handoff_folder)

    def _policy(self, found: SessionJson) -> Policy:
        cwd = found.get("cwd") or self._folder
        return Policies(self._env).policy(found.get("agent") or "", found.get("model") or "", cwd)

    def _awaited(self, found: SessionJson, folder: Path) -> str:
        """The name under which the daemon waits for this session's document; "" if it does not."""
        listed = (self._daemon("/v1/handoffs") or {}).get("handoffs")
        for one in listed if isinstance(listed, list) else ():
            if not isinstance(one, dict) or one.get("session_id") != found.get("session_id"):
                continue
            place, name = os.path.split(str(one.get("file", "")))
            if one.get("step") in _AWAITED and handoffs.is_name(name):
                return name if os.path.realpath(place) == os.path.realpath(folder) else ""
        return ""

    def _tell(self, found: SessionJson, path: Path) -> bool:
        """Tells the daemon that a document was saved; returns whether a daemon took the message. It
        would find the file anyway, but later."""
        event = {
            "hook_event_name": "HandoffWritten",
            "agent": found.get("agent", ""),
            "session_id": found.get("session_id", ""),
            "cwd": found.get("cwd") or self._folder,
            "file": str(path),
        }
        try:
            self._remote().post("/v1/hook", event)
        except (SegueError, UnicodeError):  # UnicodeError: the path is not UTF-8
            return False
        return True

    def _daemon(self, path: str, **query: str | int) -> dict[str, Any] | None:
        """The daemon's answer; None if there is no daemon, or no usable answer."""
        try:
            found = self._remote().get(path, **query)
        except SegueError:
            return None
        return found if isinstance(found, dict) else None


def pick(sessions: Sequence[SessionJson], ancestors: Sequence[int], folder: str) -> Picked | None:
    """The session that a call is about if it names none: the one whose process is the server's
    nearest ancestor (if that process has several, one of this folder), otherwise the newest live
    one of the folder, otherwise the newest of the folder; None if there is none. `sessions`:
    sorted, the best first."""

    def is_here(one: SessionJson) -> bool:
        return bool(one.get("cwd")) and os.path.realpath(one["cwd"]) == folder

    for pid in ancestors:
        mine = [one for one in sessions if one.get("pid") == pid]
        if mine:
            return Picked(next(filter(is_here, mine), mine[0]), "parent")
    here = next(filter(is_here, sessions), None)
    if here is None:
        return None
    return Picked(here, "newest_live" if here.get("state") in _LIVE else "newest")


def _name(one: SessionJson) -> SessionName:
    return SessionName(*(str(one.get(key) or "") for key in ("session_id", "path", "cwd")))


def _rank(one: SessionJson) -> tuple[bool, str]:
    return one.get("state") in _LIVE, one.get("last_activity") or ""


def _dicts(machine: Machine, since: float | None = None) -> list[SessionJson]:
    return [tables.as_dict(session) for session in list_sessions(machine, since)]


def _fullness(one: SessionJson) -> str:
    """How full a session is, whether it was handed over, and its run."""
    size = _size(one)
    if one.get("handed_over_to"):
        size += f"; handed over to session {one_line(str(one['handed_over_to']))}"
    if one.get("run"):
        size += f"; part of {one['run']} ({one['run_state']})"
    return size


def _size(one: SessionJson) -> str:
    context, ahead = one.get("context"), one.get("handoff")
    if not isinstance(context, dict):
        return "its size is unknown: no reply states its usage yet"
    text = f"{context['percent']:.0f}% of {context['window']:,} tokens used, zone {context['zone']}"
    if not isinstance(ahead, dict) or ahead.get("tokens") is None:
        return text
    if not ahead["tokens"]:
        return f"{text}; the handoff is due"
    turns = f", some {ahead['turns']:g} turns" if ahead.get("turns") else ""
    return f"{text}; {ahead['tokens']:,} tokens{turns} to the handoff"
