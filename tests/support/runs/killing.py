"""kill -9 of segue at one point of a run, then `segue resume`: nothing is lost, nothing is done
twice, nothing is left running."""

from collections.abc import Sequence
from pathlib import Path

import psutil

from support.running import Ended, Staged

HERE = Path(__file__).parent
PLACES = ("before", "after")  # what is before a fact is after all that the last one led to


def killed_at(s: Staged, point: str, more: Sequence[str]) -> Ended:
    process = s.start_script(HERE / "killed.py", point, *s.words("--json", *more))
    return s.end(process)


def left_running(s: Staged) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HOME") == s.env["HOME"]:
                found.append(process)
        except psutil.Error:
            continue
    return found


def check_killed(s: Staged, point: str, more: Sequence[str] = ()) -> str:
    """Kills it there, resumes it, and checks what came of it; the run's id."""
    dead = killed_at(s, point, more)
    assert dead.code == -9, f"this run came by no {point}: {dead.stderr}"
    (run_id,) = s.run_ids()
    if s.state(run_id) != "done":
        again = s.segue("resume", "--json")
        assert again.code == 0, again.stderr
        assert again.events[-1]["state"] == "done"
    found = s.continuity()
    assert found.is_whole, (found, s.answers)
    with s.store() as store:
        legs = [leg.leg for leg in store.legs(run_id)]
        assert legs == list(range(1, len(legs) + 1))
        run = store.run(run_id)
        assert run is not None
        assert not store.rebuild()  # what is made from the log is what the log says
    for number in legs:
        spec = s.leg(run_id, number) / "keeper.json"
        assert spec.exists() == (s.leg(run_id, number) / "exit.json").exists()
    assert not left_running(s)
    return run_id
