"""The pages, made of blocks with ids. An open page receives only the blocks that changed. Blocks
contain points in time rather than durations: the browser counts, so a block in which only time
passes need not be sent again."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from segue.dashboard import history, runs_page, sessions_page, words, work_page
from segue.dashboard.sources import Source
from segue.errors import InputError
from segue.system import clock
from segue.views.lines import notes as note_lines

_LOG = 200
_KINDS = {
    "crossing": "zone",
    "wake": "resume",
    "takeup": "resume",
    "metrics": "handoff",
    "arrival": "handoff",
}
_MAX_CARDS = 5_000
NAV = (("/", "Now"), ("/runs", "Runs"), ("/history", "History"), ("/log", "Log"))


class Page(NamedTuple):
    """A page's title, the ids of the blocks in each list, and each block's HTML by id."""

    title: str
    lists: dict[str, list[str]]
    blocks: dict[str, str]


class Pages:
    """Draws any page. Not thread-safe."""

    def __init__(self, source: Source, csrf: str) -> None:
        self.source, self.csrf = source, csrf
        self.env = Environment(
            loader=PackageLoader("segue.dashboard"),
            autoescape=select_autoescape(default=True, default_for_string=True),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._drawn: dict[str, tuple[Any, str]] = {}
        self._cards: dict[tuple[str, str], tuple[dict[str, Any], tuple[bool, bool], str]] = {}

    def page(self, path: str) -> Page:
        """The page at a path. Raises InputError if there is none."""
        parts = [part for part in path.split("/") if part]
        makers: dict[tuple[str, int], Callable[..., Page]] = {
            ("", 0): self._now,
            ("runs", 1): self._runs,
            ("runs", 2): self._run,
            ("sessions", 2): self._session,
            ("history", 1): self._history,
            ("log", 1): self._log,
        }
        make = makers.get((parts[0] if parts else "", len(parts)))
        if make is None:
            raise InputError(f"no such page: {words.line(path, 100)}")
        found = make(*parts[1:])
        top = {
            "daemon": self._daemon(),
            "needs": self._block("needs", sessions_page.needs(self.source.picture)),
        }
        return Page(
            found.title, {"top": ["daemon", "needs"], **found.lists}, {**top, **found.blocks}
        )

    def whole(self, path: str, found: Page) -> str:
        """A page as a complete HTML document."""
        return self.env.get_template("page.html").render(
            page=found, path=path, nav=NAV, csrf=self.csrf
        )

    def plain(self, title: str, text: str, back: str = "/") -> str:
        """A complete HTML document with only a title, a text and a link back."""
        return self.env.get_template("plain.html").render(
            title=title, text=words.text(text, 4_000), back=back
        )

    def _block(self, name: str, given: Any, id: str = "") -> str:
        """A block's HTML, drawn again only if its data changed."""
        key = id or name
        drawn = self._drawn.get(key)
        if drawn is not None and drawn[0] == given:
            return drawn[1]
        html = self.env.get_template(f"{name}.html").render(**given, id=key, csrf=self.csrf)
        if len(self._drawn) > 5_000:
            self._drawn.clear()
        self._drawn[key] = (given, html)
        return html

    def _daemon(self) -> str:
        picture = self.source.picture
        paused = [words.tilde(each) for each in (picture.daemon or {}).get("paused", [])]
        given = {
            "is_there": picture.daemon is not None,
            "paused": paused,
            "trouble": words.line(picture.trouble),
        }
        return self._block("daemon", given)

    def _now(self) -> Page:
        picture = self.source.picture
        live, rest = sessions_page.split(picture.sessions)
        limits = sessions_page.limits(picture.sessions, picture.at)
        lists: dict[str, list[str]] = {
            "live": [],
            "limits": ["limits"],
            "rest": [],
            "counts": ["counts"],
        }
        blocks = {
            "counts": self._block("counts", sessions_page.counts(live, picture.runs)),
            "limits": self._block("limits", {"limits": limits}),
        }
        paused = (picture.daemon or {}).get("paused", [])
        for place, sessions in (("live", live), ("rest", rest)):
            for session in sessions:
                id = self._card(
                    session,
                    is_watched=picture.daemon is not None,
                    is_paused=sessions_page.is_paused(session, paused),
                )
                lists[place].append(id)
                blocks[id] = self._drawn[id][1]
        return Page("Now", lists, blocks)

    def _card(self, session: dict[str, Any], *, is_watched: bool, is_paused: bool) -> str:
        """Draws a session's card and returns its id. Most sessions do not change between two looks,
        and `Source` then keeps the same objects: they are recognised without a comparison."""
        name, how = (session["agent"], session["session_id"]), (is_watched, is_paused)
        cached = self._cards.get(name)
        is_same = cached is not None and cached[0] is session and cached[1] == how
        if cached is not None and is_same and cached[2] in self._drawn:
            return cached[2]
        card = sessions_page.card(session, is_watched=is_watched, is_paused=is_paused)
        id = f"s-{card['key']}"
        self._block("card", {"card": card}, id)
        if len(self._cards) > _MAX_CARDS:
            self._cards.clear()
        self._cards[name] = (session, how, id)
        return id

    def _runs(self) -> Page:
        given = runs_page.overview(self.source, clock.now())
        return Page("Runs", {"main": ["runs"]}, {"runs": self._block("runs", given)})

    def _run(self, run_id: str) -> Page:
        given = runs_page.one(self.source, run_id, clock.now())
        did = work_page.work(self.source, self.source.run(run_id).run)
        names = ("run_head", "run_words", "run_timeline", "run_work", "run_more")
        ids = [f"{name}-{run_id}" for name in names]
        blocks = {
            id: self._block(name, {"work": did} if name == "run_work" else {"run": given}, id)
            for id, name in zip(ids, names, strict=True)
        }
        return Page(given["title"], {"main": ids}, blocks)

    def _session(self, key: str) -> Page:
        given = sessions_page.one(self.source, key)
        id = f"session-{key}"
        return Page(
            given["card"]["project"], {"main": [id]}, {id: self._block("session", given, id)}
        )

    def _history(self) -> Page:
        given = history.figures(self.source, clock.now())
        return Page("History", {"main": ["history"]}, {"history": self._block("history", given)})

    def _log(self) -> Page:
        rows: list[dict[str, Any]] = []
        steps: dict[str, str] = {}
        for note in self.source.last_notes(_LOG * 5):
            if note.kind in note_lines.QUIET or len(rows) >= _LOG:
                continue
            if note.kind == "handoff":
                id = note_lines.text(note.data, "id")
                if steps.get(id) == note_lines.step(note):
                    continue
                steps[id] = note_lines.step(note)
            rows.append(
                {
                    "at": note.at,
                    "kind": words.line(_KINDS.get(note.kind, note.kind), 20),
                    "agent": words.line(note.agent, 20),
                    "project": words.project(note.project) if note.project else "",
                    "key": sessions_page.key_of(note.agent, note.session_id)
                    if note.session_id
                    else "",
                    "session": words.line(note.session_id[:8], 8),
                    "said": words.line("; ".join(note_lines.parts(note))),
                }
            )
        return Page("Log", {"main": ["log"]}, {"log": self._block("log", {"rows": rows})})
