"""The user types at the same time, through a terminal of their own: no key of theirs is lost or
overtaken, and no message holds words of both."""

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from support.terminals import fake_tui
from support.terminals.panes import Sat, Server, User, attached, serving
from support.waiting import until

from segue.system.tmux import guard as tmux_guard
from segue.system.tmux.tmux import Tmux
from segue.system.tmux.typist import TypingRefused, Typist

ROUNDS = int(os.environ.get("SEGUE_TYPING_ROUNDS", "5"))
CROWD = 6
CALLS = 26  # of tmux, while one text is typed


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


class Counting(Tmux):
    """Has something begin with a call of its choice."""

    def __init__(self, socket: str, number: int, then: threading.Event) -> None:
        super().__init__(socket)
        self._left, self._then = number, then

    def _call(self, *arguments: object, **more: object) -> str:
        self._left -= 1
        if self._left == 0:
            self._then.set()
        return super()._call(*arguments, **more)  # type: ignore[arg-type]


class Together:
    """segue and a user before one agent."""

    def __init__(self, sat: Sat, user: User, seed: int) -> None:
        self.sat, self.user = sat, user
        self.random = random.Random(seed)
        self.typed = ""  # by the user
        self.outcomes: Counter[str] = Counter()

    def burst(self, keys: str, begins: threading.Event, gap_s: float) -> None:
        begins.wait()
        for key in keys:
            self.user.press(key)
            time.sleep(gap_s)

    def round(self, number: int) -> None:
        word = "".join(self.random.choices("abcdefgh ", k=self.random.randint(1, 6)))
        keys = f"{word}." + self.random.choice(["", "\r", "\r", "x\r"])
        begins = threading.Event()
        tmux = Counting(self.sat.tmux.socket, self.random.randint(1, CALLS), begins)
        gap_s = self.random.choice([0.0, 0.002, 0.02, 0.06])
        user = threading.Thread(target=self.burst, args=(keys, begins, gap_s))
        until(lambda: self.sat.tmux.active_s(self.sat.pane) >= 1.05)
        user.start()
        ours = f"SEGUE {number} asks for something"
        answer = Typist(lambda socket: tmux, quiet_s=1.0).type(
            self.sat.seat,
            self.sat.terminal,
            ours,
            landed=self.sat.landed(ours),
            land_s=3.0,
            keep_draft=self.random.random() < 0.6,
        )
        self.outcomes[answer.why if isinstance(answer, TypingRefused) else "landed"] += 1
        begins.set()
        user.join()
        self.typed += keys
        if self.random.random() < 0.3:  # else a draft may stand there the next time
            self.user.press("\r")

    def check(self) -> None:
        def theirs() -> str:
            mine = [message for message in self.sat.messages() if "SEGUE" not in message]
            return "".join(mine) + self.sat.screen().draft

        wanted = self.typed.replace("\r", "")
        try:
            until(lambda: theirs() == wanted)
        except AssertionError:
            pytest.fail(f"{theirs()!r} is not {wanted!r}: {self.sat.messages()}")
        ours = [message for message in self.sat.messages() if "SEGUE" in message]
        assert [m for m in ours if not m.startswith("SEGUE ") or not m.endswith("something")] == []
        assert len(ours) == len(set(ours)) >= self.outcomes["landed"]


def play(server: Server, seed: int) -> Counter[str]:
    chance = random.Random(seed)
    sat = server.sit(lag_s=chance.choice([0, 0.01, 0.04]), deaf_s=0.08, busy_s=0.1)
    sat.terminal = fake_tui.terminal(settle_s=0.15)
    with attached(server, sat.session) as user:
        together = Together(sat, user, seed)
        for number in range(ROUNDS):
            together.round(number)
        together.check()
        return together.outcomes


def test_no_key_of_the_user_is_lost_and_no_line_is_mixed(
    server: Server, record_property: Callable[[str, object], None]
) -> None:
    first = int(os.environ.get("SEGUE_TYPING_SEED", "1"))
    with ThreadPoolExecutor(CROWD) as crowd:
        seeds = range(first, first + CROWD)
        outcomes = sum(crowd.map(lambda seed: play(server, seed), seeds), Counter())
    record_property("summary", f"typing with a user: {dict(outcomes)}")
    assert outcomes["landed"] >= ROUNDS * CROWD / 4


def shows(sat: Sat, text: str) -> None:
    until(lambda: text in sat.screen().draft)


def typing(sat: Sat, settle_s: float) -> ThreadPoolExecutor:
    """Types, in a thread of its own."""
    sat.terminal = fake_tui.terminal(settle_s)
    until(lambda: sat.tmux.active_s(sat.pane) >= 1.05)
    return ThreadPoolExecutor(1)


def type_ours(sat: Sat) -> TypingRefused | None:
    landed = sat.landed("SEGUE asks")
    return Typist(quiet_s=1.0).type(sat.seat, sat.terminal, "SEGUE asks", landed=landed)


def test_keys_that_come_while_our_text_is_there_come_after_it(server: Server) -> None:
    sat = server.sit()
    with attached(server, sat.session) as user, typing(sat, 0.4) as thread:
        answer = thread.submit(type_ours, sat)
        shows(sat, "SEGUE asks")
        user.press("mine\rthe next")
        assert answer.result() is None
        until(lambda: sat.screen().draft == "the next")
    assert sat.messages() == ["SEGUE asks", "mine"]
    assert "segue-" not in sat.tmux.run("list-keys")


def test_with_two_users_words_that_went_into_our_text_are_given_back(server: Server) -> None:
    """Then a key that is kept back says nothing about the other's keys: ours is taken out."""
    sat = server.sit()
    with (
        attached(server, sat.session) as user,
        attached(server, sat.session),
        typing(sat, 0.4) as thread,
    ):
        answer = thread.submit(type_ours, sat)
        shows(sat, "SEGUE asks")
        user.press("mine")
        refused = answer.result()
        assert refused is not None
        assert refused.why == "draft"
        until(lambda: sat.screen().draft == "mine")
    assert sat.messages() == []


def test_keys_behind_a_prefix_of_tmux_are_not_kept_back_and_are_given_back(server: Server) -> None:
    sat = server.sit()
    with attached(server, sat.session) as user, typing(sat, 0.4) as thread:
        answer = thread.submit(type_ours, sat)
        shows(sat, "SEGUE asks")
        user.press("\x02omine")  # the next pane: there is only this one
        shows(sat, "SEGUE asksmine")
        refused = answer.result()
        assert refused is not None
        assert refused.why == "draft"
        until(lambda: sat.screen().draft == "mine")
    assert sat.messages() == []


def test_keys_that_could_be_kept_no_longer_went_in_even_if_they_are_not_seen_yet(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tmux_guard, "HOLD_S", 0.3)
    sat = server.sit(lag_s=0.5)
    held = ("display-message", "-p", "-t", sat.pane, "#{@segue_hold}")
    with attached(server, sat.session) as user, typing(sat, 0.7) as thread:
        answer = thread.submit(type_ours, sat)
        until(lambda: sat.tmux.run(*held) != "\n")
        user.press("mine")  # goes in after 0.3 s and shows after 1: between is the Enter
        refused = answer.result()
        assert refused is not None
        assert refused.why == "draft"
        until(lambda: sat.screen().draft == "mine")
    assert sat.messages() == []


def test_a_look_while_our_text_is_there_lets_no_key_in(server: Server) -> None:
    sat = server.sit()
    with attached(server, sat.session) as user, typing(sat, 0.6) as thread:
        answer = thread.submit(type_ours, sat)
        shows(sat, "SEGUE asks")
        user.press("mine")
        held = ("display-message", "-p", "-t", sat.pane, "#{@segue_held}")
        until(lambda: sat.tmux.run(*held) == "1\n")
        seen = Typist().look(sat.seat, sat.terminal)
        assert not isinstance(seen, TypingRefused)
        assert seen.draft == "SEGUE asks"
        assert answer.result() is None
        until(lambda: sat.screen().draft == "mine")
    assert sat.messages() == ["SEGUE asks"]


def test_a_hold_that_is_made_ready_and_never_begun_goes_away(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tmux_guard, "HOLD_S", 0.2)
    sat = server.sit()
    pane = sat.tmux.pane(sat.pane)
    assert pane is not None
    with attached(server, sat.session):
        assert tmux_guard.PaneGuard(sat.tmux, pane).holding()
        assert "segue-" in sat.tmux.run("list-keys")
        until(lambda: "segue-" not in sat.tmux.run("list-keys"))


def test_nothing_is_typed_while_the_user_is_in_a_key_sequence_of_tmux(server: Server) -> None:
    sat = server.sit()
    with attached(server, sat.session) as user, typing(sat, 0.1):
        user.press("\x02")
        tables = ("list-clients", "-t", sat.session, "-F", "#{client_key_table}")
        until(lambda: sat.tmux.run(*tables) == "prefix\n")
        until(lambda: sat.tmux.active_s(sat.pane) >= 1.05)
        refused = type_ours(sat)
        assert refused is not None
        assert refused.why == "user_active"
        assert sat.tmux.run(*tables) == "prefix\n"
    assert sat.messages() == []


def test_a_killed_typist_keeps_nobodys_keys_for_long(server: Server) -> None:
    sat = server.sit()
    code = (
        "import sys; sys.path[:0] = sys.argv[1:2]\n"
        "import msgspec, fake_tui\n"
        "from segue.system.tmux import guard as tmux_guard\n"
        "from segue.system.tmux.panes import AgentPane as Seat\n"
        "from segue.system.tmux.typist import Typist\n"
        "tmux_guard.HOLD_S = 1.0\n"
        "seat = msgspec.json.decode(sys.argv[2], type=Seat)\n"
        "terminal = fake_tui.terminal(60)\n"
        "Typist(quiet_s=1.0).type(seat, terminal, 'SEGUE asks', landed=lambda: False)\n"
    )
    folder = os.path.dirname(fake_tui.__file__)
    argv = [sys.executable, "-c", code, folder, msgspec.json.encode(sat.seat).decode()]
    with attached(server, sat.session) as user, typing(sat, 0.1):
        with subprocess.Popen(argv) as killed:
            shows(sat, "SEGUE asks")
            killed.kill()
        user.press("mine")
        until(lambda: sat.screen().draft == "SEGUE asksmine")
        until(lambda: "segue-" not in sat.tmux.run("list-keys"))
        user.press("\x15")
        until(lambda: sat.screen().draft == "")
