"""A provider's own code, as an agent prints it, is acted on: through `segue run`."""

import json
import sys
from pathlib import Path

import pytest
from support.running import stage

AGENT = """
import pathlib, sys
said, seen = sys.argv[1], pathlib.Path(sys.argv[2])
if not seen.exists():
    seen.write_text(sys.argv[3])
    print("Working.")
    sys.exit(said)
print(sys.argv[3].splitlines()[0])
"""
FORMS = (
    'Error: {"error": {"code": "%s", "message": "The request failed."}}',
    '{"type": "error", "error": {"type": "%s", "message": "The request failed."}}',
    "Error: %s",
)
GOES_ON = {
    "context_length_exceeded": "a new session continues",
    "rate_limit_exceeded": "rate limited",
    "rate_limit_error": "rate limited",
    "RESOURCE_EXHAUSTED": "rate limited",
    "overloaded_error": "provider overloaded",
    "server_is_overloaded": "provider overloaded",
    "UNAVAILABLE": "provider overloaded",
}
ENDS = {"insufficient_quota": "billing", "invalid_api_key": "auth", "permission_error": "auth"}


def run(folder: Path, said: str) -> tuple[int, str, str]:
    """Its exit code, what was said, and the reason of its first stop."""
    script = folder / "agent.py"
    script.write_text(AGENT)
    with stage("success", within=folder) as s:
        words = [sys.executable, str(script), said, str(folder / "seen"), "{prompt}"]
        s.config(f"[agents.own]\ncommand = {json.dumps(words)}\n")
        ended = s.segue("run", "--agent", "own", "The task.")
        (run_id,) = s.run_ids()
        stops = json.loads(s.segue("show", "--json", run_id).stdout)["stops"]
    return ended.code, ended.stderr, stops[0]["reason"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("code", GOES_ON)
def test_work_continues_after_a_code_that_says_how(code: str, form: str, tmp_path: Path) -> None:
    exit_code, said, _ = run(tmp_path, form % code)
    assert exit_code == 0, said
    assert GOES_ON[code] in said
    assert "2 legs" in said


@pytest.mark.parametrize("code", ENDS)
def test_a_code_that_only_the_user_can_help_with_ends_the_run_for_that(
    code: str, tmp_path: Path
) -> None:
    exit_code, said, reason = run(tmp_path, FORMS[0] % code)
    assert (exit_code, reason) == (1, ENDS[code])
    assert "only" not in said.partition("sure")[0].rpartition("why")[2], "it is not in doubt"
