"""Which process has which session open."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from segue.core.sessions.alive import Subject, behind
from segue.core.sessions.types import Hold, Look, Process, SessionState, state_of


def session(name: str, **fields: object) -> Subject:
    given = {"key": name, "agent": "pi", "session_id": name, "path": f"/s/{name}", "cwd": "/p"}
    return Subject(**(given | {"last_at": 100.0} | fields))  # type: ignore[arg-type]


def process(pid: int, **fields: object) -> Process:
    given = {"agent": "pi", "pid": pid, "started_at": 50.0, "cwd": "/p"}
    return Process(**(given | fields))  # type: ignore[arg-type]


def pids(sessions: list[Subject], processes: list[Process]) -> dict[str, int]:
    return {key: found.pid for key, found in behind(sessions, processes).items()}


# What a process says or shows


def test_a_process_is_behind_the_session_that_it_names() -> None:
    sessions = [session("a", cwd="/elsewhere", last_at=1.0), session("b")]
    assert pids(sessions, [process(1, session_id="a")]) == {"a": 1}


def test_a_process_whose_session_has_no_file_yet_is_behind_no_other() -> None:
    assert pids([session("a")], [process(1, session_id="new")]) == {}
    assert pids([session("a")], [process(1, holds=(Hold(session_id="new"),))]) == {}


def test_one_that_continues_with_the_newest_session_has_that_and_no_other() -> None:
    sessions = [session("old", last_at=10.0), session("new", last_at=20.0)]
    goes_on = process(1, goes_on=True)
    assert pids(sessions, [process(1)]) == {}  # nothing was written since it began
    assert pids(sessions, [goes_on]) == {"new": 1}
    assert pids(sessions, [goes_on, process(2, goes_on=True)]) == {"new": 2}
    assert pids(sessions, [goes_on, process(2, session_id="new")]) == {"new": 2}
    assert pids(sessions, [replace(goes_on, cwd="/elsewhere")]) == {}
    # What it wrote since is another one: it was told to begin anew.
    assert pids([*sessions, session("since", last_at=60.0)], [goes_on]) == {"since": 1}


def test_another_agents_process_is_never_behind_a_session() -> None:
    named = process(1, agent="qwen", session_id="a")
    holding = process(2, agent="qwen", holds=(Hold(session_id="a", path="/s/a"),))
    near = process(3, agent="qwen")
    assert pids([session("a")], [named, holding, near]) == {}
    assert pids([session("a", agent="qwen")], [process(1)]) == {}


def test_of_two_processes_on_a_session_the_one_at_work_is_meant_then_the_later() -> None:
    early, late = process(1, session_id="a"), process(2, session_id="a", started_at=60.0)
    assert pids([session("a")], [early, late]) == {"a": 2}
    busy = replace(early, status="busy")
    assert pids([session("a")], [replace(late, status="idle"), busy]) == {"a": 1}


def test_the_other_of_two_processes_on_a_session_is_behind_no_other() -> None:
    both = [process(1, session_id="a"), process(2, session_id="a")]
    assert pids([session("a"), session("b")], both) == {"a": 2}


def test_of_two_files_of_a_session_the_newer_has_the_process() -> None:
    old = session("old", session_id="a", last_at=90.0)
    new = session("new", session_id="a")
    assert pids([old, new], [process(1, session_id="a")]) == {"new": 1}
    assert pids([new, old], [process(1, session_id="a")]) == {"new": 1}


def test_an_open_file_tells_two_files_of_a_session_apart() -> None:
    old = session("old", session_id="a", last_at=90.0)
    new = session("new", session_id="a")
    holding = process(1, holds=(Hold(session_id="a", path="/s/old"),))
    assert pids([old, new], [holding]) == {"old": 1}
    unnamed = process(1, cwd="", holds=(Hold(path="/s/old"),))
    assert pids([old, new], [unnamed]) == {"old": 1}


def test_of_several_sessions_that_are_held_the_last_active_one_is_meant() -> None:
    holds = (Hold(session_id="a", since=60.0), Hold(session_id="b", since=70.0))
    holding = process(1, holds=holds)
    assert pids([session("a", last_at=65.0), session("b", last_at=90.0)], [holding]) == {"b": 1}
    assert pids([session("a", last_at=95.0), session("b", last_at=90.0)], [holding]) == {"a": 1}


def test_a_terminal_that_began_a_new_session_has_left_the_old_one() -> None:
    holds = (Hold(session_id="a", since=60.0), Hold(session_id="new", since=120.0))
    assert pids([session("a")], [process(1, holds=holds)]) == {}


def test_a_sub_agents_session_has_no_process_and_takes_none_from_its_parent() -> None:
    child = session("child", parent_id="a", last_at=150.0)
    holds = (Hold(session_id="a", since=60.0), Hold(session_id="child", since=140.0))
    assert pids([session("a"), child], [process(1, holds=holds)]) == {"a": 1}
    assert pids([session("a"), child], [process(1)]) == {"a": 1}
    assert pids([child], [process(1, session_id="child")]) == {}


# What is guessed


def test_a_silent_process_is_behind_the_newest_session_in_its_folder() -> None:
    sessions = [session("old", last_at=90.0), session("new"), session("far", cwd="/q", last_at=200)]
    assert pids(sessions, [process(1)]) == {"new": 1}


def test_a_session_that_rests_since_before_the_process_began_is_not_its() -> None:
    assert pids([session("a", last_at=49.0)], [process(1)]) == {}
    assert pids([session("a", last_at=50.0)], [process(1)]) == {"a": 1}
    assert pids([session("a", last_at=None)], [process(1, started_at=-5.0)]) == {}


def test_a_process_that_named_its_session_is_not_guessed_to_be_behind_another() -> None:
    assert pids([session("a"), session("b")], [process(1, session_id="a")]) == {"a": 1}


def test_a_session_with_a_certain_process_leaves_the_guess_to_the_next() -> None:
    sessions = [session("a", last_at=200.0), session("b")]
    assert pids(sessions, [process(1, session_id="a"), process(2)]) == {"a": 1, "b": 2}


def test_two_silent_processes_in_a_folder_are_behind_its_two_newest_sessions() -> None:
    sessions = [session("a", last_at=80.0), session("b"), session("c", last_at=70.0)]
    late = process(2, started_at=90.0)  # too late for a
    assert pids(sessions, [process(1), late]) == {"b": 2, "a": 1}


def test_a_process_without_a_folder_is_behind_nothing() -> None:
    sessions = [session("a", cwd=""), session("b", session_id="a", cwd="", last_at=90.0)]
    assert pids(sessions, [process(1, cwd="")]) == {}
    assert pids(sessions, [process(1, cwd=""), process(2, session_id="a")]) == {"a": 2}


def test_a_slash_at_the_end_of_a_folder_is_nothing() -> None:
    assert pids([session("a", cwd="/p/")], [process(1)]) == {"a": 1}
    assert pids([session("a")], [process(1, cwd="/p/")]) == {"a": 1}
    assert pids([session("a", cwd="/")], [process(1, cwd="/")]) == {"a": 1}


def test_a_process_is_guessed_only_to_work_in_the_database_that_it_has_open() -> None:
    sessions = [session("a", path="/one.db", last_at=200.0), session("b", path="/two.db")]
    assert pids(sessions, [process(1, database="/two.db")]) == {"b": 1}


# Servers


def test_a_client_is_behind_the_session_in_its_folder_that_its_server_keeps() -> None:
    held = tuple(Hold(session_id=name, since=60.0) for name in ("mine", "far"))
    server = process(9, serves=True, cwd="", holds=held)
    sessions = [session("mine"), session("far", cwd="/q"), session("other", last_at=200.0)]
    assert pids(sessions, [process(1), server]) == {"mine": 1}


def test_a_session_that_a_server_took_up_for_a_client_is_the_clients_before_anything_is_said() -> (
    None
):
    server = process(9, serves=True, cwd="", holds=(Hold(session_id="a", since=60.0),))
    assert pids([session("a", last_at=10.0)], [process(1), server]) == {"a": 1}


def test_what_a_server_keeps_lives_only_while_a_turn_is_open_or_a_client_is_there() -> None:
    held = tuple(Hold(session_id=name, since=60.0) for name in "abc")
    server = process(9, serves=True, cwd="", holds=held)
    sessions = [session("a", is_open=True), session("b"), session("c", is_open=True)]
    assert pids(sessions, [server]) == {"a": 9, "c": 9}


def test_a_server_is_not_guessed_by_its_folder() -> None:
    assert pids([session("a", is_open=True)], [process(9, serves=True)]) == {}


# Anything

NAMES = st.sampled_from(["", "a", "b", "c", "d"])
PLACES = st.sampled_from(["", "/", "/p", "/p/", "/q"])
TIMES = st.integers(-1, 6).map(float)
SUBJECTS = st.lists(
    st.builds(
        Subject,
        key=st.integers(0, 12).map(str),
        agent=st.sampled_from(["pi", "qwen"]),
        session_id=NAMES,
        path=NAMES,
        cwd=PLACES,
        parent_id=st.sampled_from(["", "", "", "a"]),
        last_at=st.none() | TIMES,
        is_open=st.booleans(),
    ),
    max_size=8,
    unique_by=lambda s: s.key,
)
PROCESSES = st.lists(
    st.builds(
        Process,
        agent=st.sampled_from(["pi", "qwen"]),
        pid=st.integers(1, 12),
        started_at=TIMES,
        cwd=PLACES,
        session_id=st.sampled_from(["", "", "a", "b"]),
        holds=st.just(())
        | st.lists(st.builds(Hold, session_id=NAMES, path=NAMES, since=TIMES), max_size=3).map(
            tuple
        ),
        database=st.sampled_from(["", "a"]),
        serves=st.sampled_from([False, False, False, True]),
        status=st.sampled_from(["", "busy", "idle", "waiting"]),
    ),
    max_size=6,
    unique_by=lambda p: p.pid,
)


@given(SUBJECTS, PROCESSES, st.randoms(use_true_random=False))
def test_no_process_is_behind_two_sessions_whatever_the_order(
    sessions: list[Subject], processes: list[Process], chance: Random
) -> None:
    found = behind(sessions, processes)
    by_key = {s.key: s for s in sessions}
    at_work = [p.pid for p in found.values() if not p.serves]
    assert len(at_work) == len(set(at_work))
    for key, its in found.items():
        assert its in processes
        assert its.agent == by_key[key].agent
        assert not by_key[key].parent_id
        assert by_key[key].is_open or not its.serves
    chance.shuffle(sessions)
    chance.shuffle(processes)
    assert behind(sessions, processes) == found


@given(SUBJECTS, PROCESSES)
def test_a_process_that_says_or_shows_its_session_is_never_guessed(
    sessions: list[Subject], processes: list[Process]
) -> None:
    by_key = {s.key: s for s in sessions}
    for key, its in behind(sessions, processes).items():
        if its.session_id and not its.serves:
            assert by_key[key].session_id == its.session_id
        elif its.holds:
            assert any(
                h.session_id == by_key[key].session_id or h.path == by_key[key].path
                for h in its.holds
            )


def test_the_same_pid_twice_is_one_process() -> None:
    both = [process(1, session_id="a"), process(1, session_id="b")]
    assert len(behind([session("a"), session("b")], both)) == 1


def test_an_agent_that_asks_for_something_waits_for_the_user() -> None:
    asks = process(1, session_id="a", status="waiting", waiting_for="permission prompt")
    assert state_of(Look(), asks, 0.0) is SessionState.WAITING_FOR_USER
    assert state_of(Look(), replace(asks, status="busy"), 0.0) is SessionState.WORKING
