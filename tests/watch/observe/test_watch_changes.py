"""What changed since a client last asked the daemon: only that is told."""

import time
from pathlib import Path

from support.homes import prompt, reply
from support.watching import watching

ONE, OTHER = (f"{n}1111111-2222-4333-8444-555555555555" for n in (1, 2))


def write(home: Path, session: str, number: int, used: int) -> None:
    file = home / f".claude/projects/-{session[:4]}/{session}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as out:
        if number == 1:
            out.write(prompt("x", at=time.time() - 60, session=session, cwd="/x") + "\n")
        out.write(reply(number, used, at=time.time(), session=session, cwd="/x") + "\n")


def test_only_sessions_that_changed_are_reported_and_those_that_are_gone_and_all_to_a_newcomer(
    own_home: Path,
) -> None:
    for session in (ONE, OTHER):
        write(own_home, session, 1, 20_000)
    (own_home / "segue").mkdir()
    with watching(own_home / "segue", {"HOME": str(own_home)}) as watch:

        def changed(after: int) -> set[str]:
            told = watch.remote.get("/v1/changes", after=after)
            return {each["session_id"] for each in told["sessions"]}

        def all_known() -> bool:
            told = watch.remote.get("/v1/changes")
            return {each["session_id"] for each in told["sessions"]} == {ONE, OTHER}

        watch.until(all_known, "both")
        whole = watch.remote.get("/v1/changes")
        assert whole["is_whole"]
        seen = whole["revision"]
        again = watch.remote.get("/v1/changes", after=seen)
        assert (again["is_whole"], again["sessions"], again["gone"]) == (False, [], [])
        write(own_home, ONE, 2, 150_000)
        watch.until(lambda: changed(seen) == {ONE}, "the one that changed")
        (own_home / f".claude/projects/-{OTHER[:4]}/{OTHER}.jsonl").unlink()
        gone = [{"agent": "claude", "session_id": OTHER}]
        watch.until(
            lambda: watch.remote.get("/v1/changes", after=seen)["gone"] == gone, "that it is gone"
        )
        assert watch.remote.get("/v1/changes", after=1)["is_whole"]  # of an earlier daemon
        assert watch.stop() == 0
