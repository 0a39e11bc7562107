"""`segue watch`: sees all sessions, keeps what matters of them, and acts where the user allows it.

One thread looks and decides (`run`), one touches terminals (`Hands`), some answer the API. What is
shared is behind `World.lock`; nothing is waited for while it is held.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

import msgspec

from segue.agents import terminals
from segue.core import zones
from segue.core.reading import Zone
from segue.core.session import Session, State
from segue.errors import SegueError
from segue.io.notices import Notices
from segue.io.seats import shell_in
from segue.io.tmux import Tmux, TmuxError
from segue.io.typist import Refused, Typist
from segue.runner.clock import Clock
from segue.watch import endings
from segue.watch.hands import Hands
from segue.watch.log import Log
from segue.watch.observer import SETTLE_S, Observer, Sighting
from segue.watch.rules import Rules
from segue.watch.seating import Seating
from segue.watch.stops import Stops
from segue.watch.waking import Waking
from segue.watch.world import Kept, World, label

TICK_S = 1.0
"""How often what only time changes is looked at, while there is such a thing."""
IDLE_S = 30.0
READING_STEP = 0.01
"""A reading is written down when the window has filled by this much more."""
KEEP_READINGS_S = 30 * 86_400.0
_PRUNE_S = 6 * 3600.0
_FORGET_S = 2 * 86_400.0


class Watch:
    """The daemon. `run` returns when `stop` was called, by whatever thread or signal."""

    def __init__(
        self,
        *,
        env: Mapping[str, str],
        log: Log,
        rules: Rules,
        say: Callable[[str], None],
        clock: Clock | None = None,
        notices: Notices | None = None,
        observer: Observer | None = None,
        typist: Typist | None = None,
    ) -> None:
        self.clock = clock or Clock()
        general = rules.policy("", "", "")
        self.world = World(
            env=env,
            clock=self.clock,
            log=log,
            rules=rules,
            typist=typist or Typist(say=say),
            notices=notices or Notices(general.notify, terse=general.notify_terse, bell=sys.stderr),
            say=say,
        )
        self.observer = observer or Observer(
            env=env, policy_for=rules.policy, homes=rules.homes, clock=self.clock.now
        )
        self.hands = Hands(self.world)
        self.waking = Waking(self.world, self.hands)
        self.stops = Stops(self.world, self.waking)
        self.waking.stops = self.stops
        self.waking.wakes = self.observer.wake
        self.seating = Seating()
        self.began_at = self.clock.now()
        self._ended: list[tuple[float, Sighting]] = []
        self._queued: list[tuple[str, str]] = []  # sessions that wait for their turn to hand over
        self._reload = threading.Event()
        self._stop = threading.Event()
        self._pruned_at = float("-inf")

    # Running

    def run(self) -> None:
        """Until it is stopped."""
        world = self.world
        world.note("daemon", None, {"event": "started", "pid": os.getpid()})
        self._restore()
        self._take(self.observer.step(0))
        self.hands.start()
        try:
            while not self._stop.is_set():
                self._take(self.observer.step(self._pause_s()))
                with world.lock:
                    self._tick()
        finally:
            self.hands.stop()
            world.note("daemon", None, {"event": "stopped"})
            self.observer.close()
            world.notices.close()

    def stop(self) -> None:
        """Ends `run` soon. For any thread, and signals."""
        self._stop.set()
        self.observer.wake()
        with self.world.news:
            self.world.news.notify_all()

    def reload(self) -> None:
        """Reads the config again, soon."""
        self._reload.set()
        self.observer.wake()

    def catch_signals(self) -> None:
        """SIGTERM and Ctrl+C end it, SIGHUP reads the config again."""

        def caught(number: int, _: FrameType | None) -> None:
            if number == signal.SIGHUP:
                self.reload()
            else:
                self.stop()

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, caught)

    def _pause_s(self) -> float:
        if self._ended:
            return max(0.0, self._ended[0][0] - self.clock.awake())
        with self.world.lock:
            busy = bool(self.hands.cycles or self._queued)
            due = [p.verdict for p in self.stops.pending.values()]
            critical = any(kept.memory.reminded_at is not None for kept in self.world.kept.values())
        if busy or due or critical:
            return TICK_S
        return IDLE_S

    # Seeing

    def _take(self, sightings: Sequence[Sighting]) -> None:
        for sighting in sightings:
            with self.world.lock:
                self._see(sighting)
        while self.observer.notes:
            self.world.say(self.observer.notes.popleft())
        for note in self.world.rules.notes:
            self.world.say(note)
        self.world.rules.notes.clear()

    def _see(self, sighting: Sighting) -> None:
        session = sighting.session
        name = (session.agent, session.session_id)
        kept = self.world.kept.get(name)
        if kept is None:
            kept = self.world.kept[name] = Kept(session)
        before, kept.session = kept.session, session
        if session.process is not None:
            self.seating.learn(kept, session.process)
        if session.process is not None or sighting.before is not None:
            self._measure(kept)
            self._count_turn(kept)
        if sighting.ended is not None and session.process is None:
            self._ended.append((self.clock.awake() + SETTLE_S, sighting))
        elif session.process is not None:
            self._see_live(kept, before)

    def _see_live(self, kept: Kept, before: Session) -> None:
        session = kept.session
        if self.stops.is_stop_at_prompt(session):
            stop = endings.ending_of(session, None, endings.After(terminal="there"))
            self.stops.at_prompt(kept, stop, continues_at=self._continues_at(kept))
        elif session.state is State.WORKING or (session.last_at or 0) > (before.last_at or 0):
            self.stops.went_on(session)
        status = session.process.status if session.process else ""
        if status == "waiting" and session.process is not None:
            self._needs_you(session, session.process.waiting_for)

    def _needs_you(self, session: Session, what: str) -> None:
        key = f"{session.session_id}:{session.last_at}"
        self.world.notices.tell("needs_you", key, f"{label(session)} asks you something", what)

    def _continues_at(self, kept: Kept) -> float | None:
        """When the agent goes on by itself, if its screen says that it will."""
        stop = kept.session.stop
        seen = self.world.look(kept)
        if stop is None or isinstance(seen, Refused) or not seen.continues_at:
            return None
        return stop.retry_at

    def _measure(self, kept: Kept) -> None:
        """Readings, crossings, health checks, reminders; and the handoff, at its mark."""
        session, world = kept.session, self.world
        reading, zone = session.reading, session.zone
        if reading is None or zone is None or session.process is None:
            return
        if abs(reading.fraction - kept.noted) >= READING_STEP:
            kept.noted = reading.fraction
            world.note("reading", session, msgspec.to_builtins(reading))
        policy = world.policy(session)
        kept.memory, told = zones.observe(
            kept.memory,
            reading,
            zone,
            policy,
            project=session.cwd,
            at=self.clock.now(),
            forecast=session.forecast,
        )
        wants = zone is Zone.HANDOFF and self._may_hand_over(kept)
        for each in told:
            match each:
                case zones.Crossing():
                    world.note("crossing", session, msgspec.to_builtins(each))
                    world.say(f"{label(session)}: {each.zone.value} at {each.fraction:.0%}")
                case zones.Health():
                    check = (
                        zones.triggered(each) if wants and each.check_type == "handoff" else each
                    )
                    world.note("health", session, msgspec.to_builtins(check))
                case zones.Reminder():
                    self._remind(kept, each)
        name = (session.agent, session.session_id)
        if wants and name not in self._queued and self.hands.of(session) is None:
            self._queued.append(name)

    def _count_turn(self, kept: Kept) -> None:
        """What a task cost, from the user's words to the end of the turn."""
        session = kept.session
        if session.reading is None:
            return
        used = session.reading.used_tokens
        if session.state is State.WORKING:
            kept.turn_used = used if kept.turn_used is None else kept.turn_used
        elif kept.turn_used is not None:
            cost, kept.turn_used = used - kept.turn_used, None
            if cost > 0:
                self.world.learn_cost(session.cwd, cost)
                self.world.note("turn", session, {"tokens": cost})

    def _remind(self, kept: Kept, reminder: zones.Reminder) -> None:
        session = kept.session
        assert session.reading is not None
        text = self.world.rules.messages(session.cwd).high_context(session.reading)
        data = msgspec.to_builtins(reminder) | {"text": text}
        self.world.note("reminder", session, data)
        self.world.say(f"{label(session)}: {text.strip().splitlines()[0]}")
        percent = f"{reminder.fraction:.0%}"
        key = f"{session.session_id}:{reminder.zone.value}:{reminder.number}"
        what = f"{label(session)}: context at {percent}"
        advice = "consider a handoff: segue handoff"
        is_last = reminder.zone is Zone.HANDOFF
        self.world.notices.tell("needs_you" if is_last else "handoff", key, what, advice)

    def _may_hand_over(self, kept: Kept) -> bool:
        session = kept.session
        return (
            self.world.policy(session).auto_handoff
            and session.process is not None
            and kept.seat is not None
            and kept.terminal is not None
            and not kept.in_run
            and not kept.is_ours
            and not self.world.is_paused(session)
        )

    # What only time changes

    def _tick(self) -> None:
        if self._reload.is_set():
            self._reload.clear()
            self._read_config()
        now = self.clock.awake()
        while self._ended and self._ended[0][0] <= now:
            self._see_end(self._ended.pop(0)[1])
        for kept in self.world.kept.values():
            if kept.memory.reminded_at is not None and kept.session.process is not None:
                self._measure(kept)
        self._hand_over_next()
        self.stops.tick(self.clock.now())
        if now - self._pruned_at >= _PRUNE_S:
            self._pruned_at = now
            self._tidy()

    def _see_end(self, sighting: Sighting) -> None:
        name = (sighting.session.agent, sighting.session.session_id)
        kept = self.world.kept.get(name)
        if kept is None or kept.session.process is not None:
            return  # it was begun again
        sighting = msgspec.structs.replace(sighting, session=kept.session)
        stop = self.observer.ending_of(sighting, hook=kept.hook_end)
        kept.ended_at = self.clock.now()
        has_tmux = False
        if kept.seat is not None:
            has_tmux, kept.shell_line, there = _look_at_shell(kept)
            if not there:
                kept.seat = None
        mid_turn = endings.is_mid_turn(kept.session, sighting.ended)
        cycle = self.hands.of(kept.session)
        if cycle is None or not cycle.step.is_active:
            self.stops.ended(kept, stop, mid_turn=mid_turn, has_tmux=has_tmux)

    def _hand_over_next(self) -> None:
        """Several that reach the mark together are handed over a few at a time."""
        while self._queued:
            kept = self.world.kept.get(self._queued[0])
            if kept is None or not self._may_hand_over(kept) or self.hands.of(kept.session):
                self._queued.pop(0)
                continue
            if self.hands.active >= self.world.policy(kept.session).handoffs_at_once:
                return
            self._queued.pop(0)
            with _told(self.world):
                self.hands.begin(kept)

    def _read_config(self) -> None:
        wrong = self.world.rules.reload()
        for line in wrong:
            self.world.say(line)
        self.world.note("daemon", None, {"event": "reloaded", "wrong": wrong})
        if not wrong:
            self.world.say("the config was read again")
        self.observer.reload(self.world.rules.policy, self.world.rules.homes)

    def _tidy(self) -> None:
        now = self.clock.now()
        for kind in ("reading", "hook", "health", "reminder", "turn", "daemon"):
            with suppress(SegueError):
                self.world.log.prune(kind, now - KEEP_READINGS_S)
        live = self.observer.sessions
        for name, kept in list(self.world.kept.items()):
            if name not in live and now - (kept.session.last_at or 0) > _FORGET_S:
                del self.world.kept[name]

    def _restore(self) -> None:
        note = self.world.log.latest("paused")
        if note is not None:
            self.world.paused = {str(what) for what in note.data.get("what", [])}
        for note in self.world.log.since(0, ("turn",)):
            tokens = note.data.get("tokens")
            if isinstance(tokens, int) and tokens > 0:
                self.world.learn_cost(note.project, tokens)
        self.stops.restore()

    # What the user says

    def pause(self, what: str, *, on: bool = True) -> str:
        """Leaves something alone, or no longer; what to tell."""
        with self.world.lock:
            if on:
                self.world.paused.add(what)
            elif what == "all":
                self.world.paused.clear()
            else:
                self.world.paused.discard(what)
            self.world.note("paused", None, {"what": sorted(self.world.paused)})
        self.observer.wake()
        return f"{'paused' if on else 'no longer paused'}: {what}"

    def one(self, name: str) -> Kept:
        """The session that a name means. Raises SegueError with one line."""
        found = self.world.find(name)
        live = [kept for kept in found if kept.session.state.is_live] or found
        if len(live) == 1:
            return live[0]
        if not live:
            raise SegueError(f"no session {name!r} is watched; `segue status` lists them")
        names = ", ".join(kept.session.session_id for kept in live[:5])
        raise SegueError(f"{name!r} may be one of {len(live)}: {names}")

    def hand_over(self, name: str, *, retry: bool) -> str:
        """Hands a session over now, or goes on with a handoff that waits for the user."""
        with self.world.lock:
            kept = self.one(name)
            cycle = self.hands.of(kept.session)
            if cycle is not None:
                if not retry:
                    said = f"handoff {cycle.id} is under way: {cycle.step.value}"
                    return f"{said}; {cycle.why}" if cycle.why else said
                self.hands.retry(cycle)
                return f"handoff {cycle.id} goes on"
            why = self._why_not(kept)
            if why:
                raise SegueError(f"{label(kept.session)} cannot be handed over: {why}")
            cycle = self.hands.begin(kept, by_user=True)
            return f"handoff {cycle.id} begins; the document will be {cycle.file}"

    def _why_not(self, kept: Kept) -> str:
        if kept.session.process is None:
            return "no agent is behind it"
        if kept.in_run:
            return "it belongs to a run, which hands over by itself"
        if terminals.find(kept.session.agent) is None:
            return f"segue cannot type into {kept.session.agent}"
        if kept.seat is None:
            return "it does not sit in tmux"
        return ""

    def cancel(self, name: str) -> str:
        """Takes a handoff or a resume back."""
        with self.world.lock:
            kept = self.one(name)
            cycle = self.hands.of(kept.session)
            if cycle is not None:
                self.hands.cancel(cycle)
                return f"handoff {cycle.id} is cancelled"
            said = self.stops.cancel(kept.session)
            return said or f"{label(kept.session)}: nothing is under way"

    def yes(self, name: str) -> str:
        """Allows what was asked about, for a day."""
        with self.world.lock:
            kept = self.one(name)
            return self.stops.say_yes(kept.session, self.clock.now() + 86_400)


class _told:  # noqa: N801 - a block
    """A fault of one session is said, and goes no further."""

    def __init__(self, world: World) -> None:
        self.world = world

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, fault: BaseException | None, _: Any) -> bool:
        if isinstance(fault, SegueError):
            self.world.say(str(fault))
            return True
        return False


def _look_at_shell(kept: Kept) -> tuple[bool, str, bool]:
    """Of the pane in which an agent has just ended: whether there is a tmux, what its shell shows,
    and whether the pane is still there."""
    assert kept.seat is not None
    tmux = Tmux(kept.seat.socket)
    try:
        pane = tmux.pane(kept.seat.pane)
        if pane is None:
            return bool(tmux.panes()), "", False
        return True, tmux.shell_line(pane.id) if shell_in(pane) else "", True
    except TmuxError:
        return False, "", False
