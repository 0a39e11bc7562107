"""A run waits for an unreachable network as long as for a limit."""

import socket
from contextlib import suppress
from pathlib import Path

import pytest
from support.running import QUICK, Staged, stage

from segue.api import classify
from segue.drill.model.script import Script
from segue.drill.model.server import running

DOWN = "network unreachable since "


def take_down(s: Staged) -> int:
    """The agent's model is at a port where nobody listens; which that is."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    here = f":{s.server.port}"
    s.env = {name: value.replace(here, f":{port}") for name, value in s.env.items()}
    assert any(f":{port}" in value for value in s.env.values())
    return port


def waits(s: Staged) -> list[str]:
    """What was decided to wait for."""
    with suppress(IndexError), s.store() as store:
        decisions = store.decisions(s.run_ids()[0])
        return [each.reason for each in decisions if each.decision == "waituntil"]
    return []


def test_a_run_outlives_an_outage_that_takes_more_tries_than_an_overload_has(
    tmp_path: Path,
) -> None:
    policy = {**QUICK, "overload_tries": 1, "max_legs": 1}
    with stage("success", within=tmp_path, policy=policy) as s:
        port = take_down(s)
        process = s.start_run()
        s.until(lambda: len(waits(s)) >= 3)
        with running(Script(s.scenario, window_tokens=200_000), port=port):
            ended = s.end(process)
        assert ended.code == 0, ended.stderr
        assert s.continuity().is_whole
        told = waits(s)
        assert all(each.startswith(DOWN) and "; next try at 20" in each for each in told)
        assert len({each.partition(";")[0] for each in told}) == 1, "one outage, one beginning"
        assert ended.stderr.count(DOWN) == len(told)


def test_an_outage_that_outlasts_the_longest_wait_is_given_up_and_says_so(tmp_path: Path) -> None:
    policy = {**QUICK, "max_limited_s": 2.5}
    with stage("success", within=tmp_path, policy=policy) as s:
        take_down(s)
        ended = s.run()
        assert ended.code == 75
        assert DOWN in ended.stderr
        assert "max_limited_s = 2.5" in ended.stderr
        assert "segue resume run-" in ended.stderr


@pytest.mark.parametrize(
    ("agent", "said", "is_outage"),
    [
        ("claude", "API Error: Connection refused (ConnectionRefused)", True),
        ("claude", "API Error: Unable to connect to API (ENOTFOUND)", True),
        ("claude", "API Error: Request timed out", True),
        ("claude", "API Error: 529 Overloaded.", False),
        ("claude", "API Error: Connection dropped (ECONNRESET)", False),
        ("claude", "API Error: 503 upstream connect error", False),
        ("codex", "ERROR: stream disconnected before completion: error sending request for url"
         " (http://203.0.113.7/v1)", True),
        ("codex", "ERROR: stream disconnected before completion: An error occurred while"
         " processing your request.", False),
        ("opencode", "Error: Unable to connect. Is the computer able to access the url?", True),
        ("gemini", "[API Error: exception TypeError: fetch failed sending request]", True),
        ("gemini", "[API Error: getaddrinfo EAI_AGAIN generativelanguage.googleapis.com]", True),
        ("pi", "Error: connect ETIMEDOUT 203.0.113.7:443", True),
    ],
)  # fmt: skip
def test_what_says_that_nobody_answered_is_told_from_an_answer(
    agent: str, said: str, is_outage: bool, tmp_path: Path
) -> None:
    file = tmp_path / "stderr"
    file.write_text(f"{said}\n")
    stop = classify(stderr=file, agent=agent, exit_code=1)
    assert (getattr(stop.details, "scope", None) == "network") == is_outage, stop
