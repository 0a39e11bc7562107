"""What one session knew, the next session knows too, through `segue run`."""

import json
from pathlib import Path

import pytest
from support.running import stage

from segue.drill.scenarios import load

UNASKED = """
[[rules]]
kind = "checkpoint"
fault = "too_long"
times = "for ever"
"""


@pytest.mark.parametrize("agent", ["rehearsal", "rehearsal-codex"])
def test_facts_told_once_outlive_a_full_window_although_the_agents_words_leave_them_out(
    agent: str, tmp_path: Path
) -> None:
    """A word that a tool printed, a decision of the model's own, a value that changed."""
    with stage("facts-told-once", agent, within=tmp_path) as s:
        ended = s.run("--json")
        assert ended.code == 0, ended.stderr
        assert s.continuity().is_whole


def test_facts_outlive_a_full_window_although_the_session_cannot_be_asked(tmp_path: Path) -> None:
    file = tmp_path / "facts-unasked.toml"
    own = (load.PACKAGED / "facts-told-once.toml").read_text()
    file.write_text(own + UNASKED)
    with stage(file, within=tmp_path) as s:
        ended = s.run("--json")
        assert ended.code == 0, ended.stderr
        assert s.continuity().is_whole


LONG = """\
<persisted-output>
Output too large (41.2KB). Full output saved to: /home/u/.claude/projects/p/tool-results/b1.txt

Preview (first 2KB):
the staging name is quokka-48613
one more line
...
</persisted-output>"""


def test_the_beginning_of_a_long_output_is_told_without_what_the_client_says_around_it(
    tmp_path: Path,
) -> None:
    """Claude Code keeps a long output in a file, and shows the model how it begins."""
    file = tmp_path / "long.toml"
    turns = "".join(
        f"[[turns]]\ncommand = {json.dumps(command)}\n"
        for command in ("sh tell", "echo one", "echo two", "echo three")
    )
    file.write_text(
        'about = "A long output."\n[job]\nsteps = 3\n'
        f'[[rules]]\nafter_requests = 4\nfault = "too_long"\n{UNASKED}'
        f'[[rules]]\nkind = "compaction"\nfault = "too_long"\ntimes = "for ever"\n{turns}'
    )
    with stage(file, within=tmp_path) as s:
        (s.project / "tell").write_text(f"cat <<'END'\n{LONG}\nEND\nrm tell\n")
        ended = s.run("--json")
        assert ended.code == 0, ended.stderr
        prompt = next(s.home.glob("runs/*/leg-002/prompt.md")).read_text()
        assert "the staging name is quokka-48613" in prompt
        results = prompt[prompt.index("## Results") :]
        for words in ("persisted-output", "too large", "Preview (", "..."):
            assert words not in results


AGAIN = ("cat notes.md", "sh build", "echo one thing", "echo another")
FORGOT = """
[[turns]]
command = "cat notes.md"
[[turns]]
command = "sh build"
[[turns]]
text = "Which port does the staging server use?"
"""


def test_a_continuation_that_reads_runs_and_asks_again_is_counted_and_shown(
    tmp_path: Path,
) -> None:
    """As a session does that was told everything and did not read it."""
    file = tmp_path / "again.toml"
    asks = '[[turns]]\ntext = "Which port does the staging server use?"\ncommand = "echo asked"\n'
    turns = asks + "".join(f"[[turns]]\ncommand = {json.dumps(each)}\n" for each in AGAIN)
    file.write_text(
        'about = "Forgets."\n[job]\nsteps = 3\n'
        f'[[rules]]\nafter_requests = 5\nfault = "too_long"\n{UNASKED}'
        f'[[rules]]\nkind = "compaction"\nfault = "too_long"\ntimes = "for ever"\n{turns}{FORGOT}'
    )
    with stage(file, within=tmp_path) as s:
        (s.project / "notes.md").write_text("The port is 8081.\n")
        (s.project / "build").write_text("echo built\n")
        ended = s.run("--json")
        assert ended.code == 0, ended.stderr
        run = ended.events[0]["run"]
        (arrived,) = json.loads(s.segue("show", "--json", run).stdout)["arrivals"]
        counts = {
            name: arrived[name] for name in ("leg", "handoff", "commands", "files", "questions")
        }
        assert counts == {"leg": 2, "handoff": 1, "commands": 1, "files": 1, "questions": 1}
        shown = s.segue("show", run).stdout
        assert "1, leg 2: " in shown
        assert "1 command" in shown
        assert "1 file" in shown
        assert "1 question" in shown
