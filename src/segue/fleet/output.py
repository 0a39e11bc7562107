"""What machines show each other of their runs: the conversation and the result.

The machine that drives a run writes both to the database: a piece of the conversation whenever
something was said, at most one every few seconds, and the result at the end of each leg and from
time to time before. Secrets are redacted, long texts are cut, and of a long run only the newest
pieces are kept. The process that drives the run uses its existing connection, and database errors
never stop it.
"""

import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from segue.core.runs.types import Run
from segue.core.secrets.redact import redact
from segue.errors import StateError
from segue.fleet.database import FleetDatabase, raw
from segue.fleet.store import PostgresStore
from segue.runs.legs.words import LegWords, Utterance
from segue.runs.results import RunResult, is_here, result_here
from segue.runs.store import leases
from segue.runs.store.port import Store, StoredLeg
from segue.system.config import config

EVERY_S = 2.0
"""The shortest time between two pieces."""
RESULT_S = 30.0
"""The shortest time between two results of a running leg."""
MAX_RUN_BYTES = 1 << 20
"""The cap on a run's conversation, compressed. The oldest pieces are deleted first."""
MAX_PIECE_CHARS = 64_000
MAX_PATCH_CHARS = 200_000
_READ_BYTES = 1 << 20
_KEEP_BYTES = 64 << 10  # kept of output that arrives faster than it is written
_MAX_INFLATED = 4 << 20
T = TypeVar("T")
_MAX_CHARS = {"agent": 8_000, "segue": 2_000, "you": 2_000, "tool": 300, "note": 1_000}


class Piece(Struct, frozen=True, kw_only=True):
    """What was said in one leg within a few seconds. `at` is by the database's clock."""

    number: int
    leg: int
    at: float
    utterances: list[Utterance]


class Publisher:
    """Publishes one run, in the process that drives it. `see` is cheap and raises nothing."""

    def __init__(
        self,
        db: PostgresStore,
        env: Mapping[str, str],
        *,
        days: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._db, self._env, self._days, self._clock = db, env, days, clock
        self._words: LegWords | None = None
        self._leg = self._number = self._bytes = 0
        self._has_begun = False
        self._next_at = self._result_at = 0.0
        self._result_of = (0, "")  # the leg and the state that the last result describes
        self._making: threading.Thread | None = None
        self._made: RunResult | None = None

    def see(self, run: Run) -> None:
        """Takes the current state of the run."""
        now = self._clock()
        if now < self._next_at or not run.leg:
            return
        self._next_at = now + EVERY_S
        # the process that drives the run meets the same error and handles it
        with suppress(StateError):
            self._write_words(run)
            self._write_made(run)
            stands = (run.leg, run.state.value if not run.is_live else "")
            is_due = stands != self._result_of or (run.is_live and now >= self._result_at)
            if is_due and self._making is None and not run.state.is_final:
                self._result_of, self._result_at = stands, now + RESULT_S
                self._make(run, self._db.legs(run.id))

    def finish(self, run: Run) -> None:
        """Writes the rest, because the run has ended or its process is about to leave it."""
        with suppress(StateError):
            if self._making is not None:
                self._making.join()
            if run.leg:
                self._write_words(run, is_last=True)
            self._write_result(run, _shareable(_here(run, self._db.legs(run.id), self._env)))
            self._forget_old()

    # The conversation

    def _begin(self, run: Run) -> None:
        """Continues where another process of this machine was killed."""
        sql = (
            "SELECT number, leg, place, (SELECT coalesce(sum(bytes), 0) FROM segue.words"
            " WHERE run = %s) FROM segue.words WHERE run = %s ORDER BY number DESC LIMIT 1"
        )
        self._leg = 1
        for number, leg, place, total in self._db.rows(sql, (raw(run.id), raw(run.id))):
            self._number, self._leg, self._bytes = number, leg, int(total)
            self._words = LegWords(run, leg)
            self._words.begin_at(place)
        self._has_begun = True

    def _write_words(self, run: Run, *, is_last: bool = False) -> None:
        if not self._has_begun:
            self._begin(run)
        while True:
            words = self._words = self._words or LegWords(run, self._leg)
            utterances = words.look(_READ_BYTES)
            if words.has_more:
                words.skip(_KEEP_BYTES)
                utterances.append(
                    Utterance(who="note", text="… some of the output is left out here")
                )
                utterances += words.look(_READ_BYTES)
            is_over = self._leg < run.leg or is_last
            if is_over:
                utterances += words.finish()
            self._put(run, _cut(utterances), words.place)
            if self._leg >= run.leg:
                return
            self._leg, self._words = self._leg + 1, None

    def _put(self, run: Run, utterances: list[Utterance], place: int) -> None:
        if not utterances:
            return
        data = zlib.compress(msgspec.json.encode(utterances))
        self._db.rows(
            "INSERT INTO segue.words (run, number, leg, place, bytes, data)"
            " VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
            (raw(run.id), self._number + 1, self._leg, place, len(data), data),
        )
        self._number, self._bytes = self._number + 1, self._bytes + len(data)
        if self._bytes > MAX_RUN_BYTES:
            ((left,),) = self._db.rows(
                "WITH kept AS (SELECT number, sum(bytes) OVER (ORDER BY number DESC) AS newer"
                " FROM segue.words WHERE run = %s), gone AS (DELETE FROM segue.words w USING kept"
                " WHERE w.run = %s AND w.number = kept.number AND kept.newer > %s)"
                " SELECT coalesce(sum(bytes), 0) FROM segue.words w JOIN kept USING (number)"
                " WHERE w.run = %s AND kept.newer <= %s",
                (raw(run.id), raw(run.id), MAX_RUN_BYTES * 3 // 4, raw(run.id),
                 MAX_RUN_BYTES * 3 // 4),
            )  # fmt: skip
            self._bytes = int(left)

    # The result

    def _make(self, run: Run, legs: Sequence[StoredLeg]) -> None:
        """Runs in a thread, because git may take seconds and nothing waits for it."""

        def make() -> None:
            with suppress(Exception):
                self._made = _shareable(_here(run, legs, self._env))

        self._making = threading.Thread(target=make, daemon=True, name="segue-result")
        self._making.start()

    def _write_made(self, run: Run) -> None:
        if self._making is None or self._making.is_alive():
            return
        made, self._making, self._made = self._made, None, None
        if made is not None:
            self._write_result(run, made)

    def _write_result(self, run: Run, result: RunResult) -> None:
        self._db.rows(
            "INSERT INTO segue.result (run, machine, data) VALUES (%s, %s, %s)"
            " ON CONFLICT (run) DO UPDATE SET machine = excluded.machine, data = excluded.data,"
            " at = clock_timestamp()",
            (raw(run.id), leases.machine(), zlib.compress(msgspec.json.encode(result))),
        )

    def _forget_old(self) -> None:
        for table in ("words", "result"):
            self._db.rows(
                f"DELETE FROM segue.{table} WHERE at < now() - %s * interval '1 day'",  # noqa: S608
                (self._days,),
            )


def publisher(store: Store, env: Mapping[str, str]) -> Publisher | None:
    """The publisher of a run in this store; None if others are not shown the run. Raises
    ConfigError."""
    if not isinstance(store, PostgresStore):
        return None
    days = config.fleet().output_days
    return Publisher(store, env, days=days) if days else None


def _cut(utterances: list[Utterance]) -> list[Utterance]:
    """Redacts secrets and cuts what is too long."""
    found, chars = [], 0
    for place, each in enumerate(utterances):
        text = redact(each.text)[0].strip()
        most = _MAX_CHARS.get(each.who, 300)
        text = text if len(text) <= most else f"{text[: most - 1]}…"
        if (chars := chars + len(text) + 50) > MAX_PIECE_CHARS:
            left = len(utterances) - place
            found.append(Utterance(who="note", text=f"… {left} more messages are left out here"))
            break
        tool = redact(each.tool)[0][:100]
        found.append(replace(each, text=text, tool=tool, call_id=each.call_id[:100]))
    return found


def _here(run: Run, legs: Sequence[StoredLeg], env: Mapping[str, str]) -> RunResult:
    return result_here(run, legs, env, with_patch=True)


def _shareable(result: RunResult) -> RunResult:
    """Redacts secrets, and cuts what nobody would read."""
    patch, is_cut = result.patch, result.is_cut
    if len(patch) > MAX_PATCH_CHARS:
        patch, is_cut = patch[: patch.rfind("\n", 0, MAX_PATCH_CHARS) + 1], True
    return replace(
        result,
        answer=redact(result.answer)[0][:MAX_PATCH_CHARS],
        patch=redact(patch)[0],
        is_cut=is_cut,
        commits=tuple((name, redact(subject)[0]) for name, subject in result.commits),
    )


# For readers on other machines


def words(db: FleetDatabase, run_id: str, after: int = 0) -> list[Piece]:
    """What was said in a run after that piece, oldest first. Raises StateError."""
    sql = (
        "SELECT number, leg, extract(epoch FROM at)::float, data FROM segue.words"
        " WHERE run = %s AND number > %s ORDER BY number"
    )
    found = []
    for number, leg, at, data in db.rows(sql, (raw(run_id), after)):
        utterances = _decoded(bytes(data), list[Utterance])
        found.append(Piece(number=number, leg=leg, at=at - db.ahead_s, utterances=utterances or []))
    return found


def result(db: FleetDatabase, run_id: str) -> RunResult | None:
    """The result of a run as its machine last published it, or None. Raises StateError."""
    for (data,) in db.rows("SELECT data FROM segue.result WHERE run = %s", (raw(run_id),)):
        return _decoded(bytes(data), RunResult)
    return None


def _decoded(data: bytes, kind: type[T]) -> T | None:
    """The decoded value, or None if a newer segue wrote it in another format. Bounded in size."""
    with suppress(zlib.error, msgspec.MsgspecError, UnicodeError):
        inflated = zlib.decompressobj().decompress(data, _MAX_INFLATED)
        return msgspec.json.decode(inflated, type=kind)
    return None


def result_of(
    store: Store,
    run: Run,
    legs: Sequence[StoredLeg],
    env: Mapping[str, str],
    *,
    with_patch: bool = False,
) -> RunResult:
    """The result of a run on any machine: from the files here if they are complete, otherwise as
    the run's own machine published it. Raises StateError."""
    own = result_here(run, legs, env, with_patch=with_patch) if is_here(run) else None
    if own is not None and own.files is not None:
        return own
    found = result(store, run.id) if isinstance(store, FleetDatabase) else None
    if found is not None:
        return found
    if own is not None or not isinstance(store, FleetDatabase):
        return own or result_here(run, legs, env)
    note = f"the run is on {machine_of(store, run.id)}, which has not published its files yet"
    return replace(result_here(run, legs, env), note=note)


def machine_of(db: FleetDatabase, run_id: str) -> str:
    """The name of the machine that a run is on. Raises StateError."""
    sql = (
        "SELECT coalesce(m.name, r.machine) FROM segue.result r LEFT JOIN segue.machine m"
        " ON m.id = r.machine WHERE r.run = %s"
    )
    for (name,) in db.rows(sql, (raw(run_id),)):
        return str(name)
    return "another machine"
