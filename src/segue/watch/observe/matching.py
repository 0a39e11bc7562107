"""Matches processes to sessions, and keeps the match up to date as both change.

If all processes of an agent report what they work on, they are matched by that alone, so a
thousand of them cost nothing while nothing changes. For other agents, `core.alive` decides
again.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from segue.core.sessions import alive
from segue.core.sessions.types import Process
from segue.sessions.find import FileOnDisk
from segue.watch.observe.viewer import Sight

Name = tuple[str, str]
"""Which session: the agent, and the session's id."""

_CHILDREN = 4096


class Matching:
    """Matches processes to sessions. `sights` are the known sessions, by name: read here, and
    changed by the caller, who then calls `session_changed`."""

    def __init__(self, sights: dict[Name, Sight]) -> None:
        self._sights = sights
        self._processes: dict[int, Process] = {}
        self._claims: dict[Name, dict[int, Process]] = {}
        self._silent: dict[str, set[int]] = {}  # by agent: those that do not report their session
        self._behind: dict[str, dict[Name, Process]] = {}
        self._children: OrderedDict[str, alive.Subject] = OrderedDict()

    def process_of(self, name: Name) -> Process | None:
        """The process that has a session open."""
        if self._silent.get(name[0]):
            return self._behind.get(name[0], {}).get(name)
        claims = self._claims.get(name)
        if not claims or name not in self._sights:
            return None
        if len(claims) == 1:
            return next(iter(claims.values()))
        subject = _subject(name, self._sights[name])
        return alive.behind([subject], claims.values()).get(subject.key)

    def add_child(self, file: FileOnDisk) -> None:
        """A sub-agent's session, which is never matched to a process."""
        self._children[file.path] = alive.Subject(
            key=file.path,
            agent=file.agent,
            session_id=file.session_id,
            path=file.path,
            parent_id=file.parent_id,
        )
        self._children.move_to_end(file.path)
        if len(self._children) > _CHILDREN:
            self._children.popitem(last=False)

    def session_changed(self, name: Name) -> set[Name]:
        """A session was written to, or is new: returns the sessions whose process may have
        changed."""
        return self._again(name[0]) | {name} if self._silent.get(name[0]) else {name}

    def update(self, came: Iterable[Process], went: Iterable[Process]) -> set[Name]:
        """Processes started, changed or ended: returns the sessions whose process may have
        changed."""
        affected: set[Name] = set()
        agents: set[str] = set()
        for process in went:
            known = self._processes.get(process.pid)
            if known is not None and known.start_ticks != process.start_ticks:
                continue  # its pid already belongs to another
            affected |= self._remove(process.pid)
            agents.add(process.agent)
        for process in came:
            affected |= self._remove(process.pid)
            agents.add(process.agent)
            self._processes[process.pid] = process
            if process.session_id and not process.serves:
                name = (process.agent, process.session_id)
                self._claims.setdefault(name, {})[process.pid] = process
                affected.add(name)
            else:
                self._silent.setdefault(process.agent, set()).add(process.pid)
        for agent in agents:
            affected |= self._again(agent)
        return affected

    def unmatched(self) -> Iterator[Name]:
        """Sessions that a process says it works on, and that have not been seen."""
        return (name for name in self._claims if name not in self._sights)

    def of_agent(self, agent: str) -> list[Process]:
        """Its processes."""
        return [p for p in self._processes.values() if p.agent == agent]

    def _remove(self, pid: int) -> set[Name]:
        before = self._processes.pop(pid, None)
        if before is None:
            return set()
        self._silent.get(before.agent, set()).discard(pid)
        name = (before.agent, before.session_id)
        claims = self._claims.get(name)
        if claims is not None and claims.pop(pid, None) is not None:
            if not claims:
                del self._claims[name]
            return {name}
        return set()

    def _again(self, agent: str) -> set[Name]:
        before = self._behind.pop(agent, {})
        now: dict[Name, Process] = {}
        if self._silent.get(agent):
            keys = {n: _subject(n, s) for n, s in self._sights.items() if n[0] == agent}
            children = [c for c in self._children.values() if c.agent == agent]
            found = alive.behind([*keys.values(), *children], self.of_agent(agent))
            now = {name: found[s.key] for name, s in keys.items() if s.key in found}
            self._behind[agent] = now
        return {n for n in before.keys() | now.keys() if before.get(n) != now.get(n)}


def _subject(name: Name, sight: Sight) -> alive.Subject:
    session = sight.session
    return alive.Subject(
        key=f"{session.path}#{name[1]}",
        agent=session.agent,
        session_id=name[1],
        path=session.path,
        cwd=session.look.cwd,
        last_at=session.look.last_at or session.changed_at,
        is_open=not session.look.awaits_user,
    )
