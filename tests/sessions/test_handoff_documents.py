"""Handoff documents: which are valid, what segue makes and adds itself, and how files are read."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.files.scan import load as load_module
from support.hangs import stopped_hang
from support.homes import SESSION, START, OpencodeDb, call, claude_session, prompt, reply

from segue.core.handoffs import prompts
from segue.core.handoffs.checkpoint import AgentSummary, Checkpoint, Command, FileChanged
from segue.core.handoffs.document import (
    MAX_BYTES,
    TASK,
    Recorded,
    check,
    complete,
    name,
    names_in,
    own,
    recorded,
    says_nothing_left,
)
from segue.core.sessions.remarks import Todo
from segue.core.stops.reasons import StopReason
from segue.sessions.documents import Predecessor, own_document
from segue.system.config.prompts import load
from segue.system.files import documents as handoffs
from segue.system.files.documents import read_document

conversations = load_module(Path(__file__).parents[2] / "bench/support/conversations.py")
FILE = "/p/.segue/handoffs/handoff-20261116T0000-h-1.md"
REQUEST = prompts.handoff_request(load(prompts.HANDOFF_REQUEST), percent=85.4, file=FILE)
FORM = REQUEST.partition("```markdown\n")[2].partition("```")[0]
SAID = {
    "Goal": "Port the parser in src/parse.py to the new grammar, so that the tests pass.",
    "Completed Work": "- src/parse.py: the tokenizer is rewritten\n- `pytest -q`: 3 of 5 pass",
    "Remaining Tasks": "1. src/parse.py: nested lists\n2. update docs/grammar.md",
    "Do Not Redo": "- the tokenizer",
    "Key Decisions": "- no new dependency",
}


def followed(said: dict[str, str] = SAID) -> str:
    """What an agent writes that does as it is told: each bracket is replaced."""
    texts = iter(said.values())
    return re.sub(r"\[[^\]]*\]", lambda _: next(texts), FORM)


def own_text(checkpoint: Checkpoint) -> str:
    return own(
        checkpoint,
        id="h-1",
        agent="claude",
        session_id="s1",
        project="/p",
        at=START,
        context_usage=0.8512345,
    )


# The prompts


def test_each_prompt_has_the_adrs_sentence_and_says_that_it_is_automatic() -> None:
    resume = prompts.handoff_resume(load(prompts.HANDOFF_RESUME), file=FILE)
    large = prompts.large_task(
        load(prompts.LARGE_TASK), percent=65, task_tokens=12_000, max_tokens=5_000
    )
    high = prompts.high_context(
        load(prompts.HIGH_CONTEXT), percent=75, used_tokens=150_000, window_tokens=200_000
    )
    assert "Create handoff document now - context at 85%" in REQUEST
    assert f"Read handoff from {FILE} and resume work" in resume
    assert "Context at 65%, complete large tasks after handoff" in large
    assert "12,000 tokens" in large
    assert "less than 5,000 tokens" in large
    assert "High context at 75% - create handoff after current work" in high
    assert "150,000 of the window's 200,000" in high
    for text in (REQUEST, resume, large, high):
        # Salvaging tells segue's prompts from the user's by these words.
        assert "This message is automatic" in text[:500]
        assert "grants no" in text
        assert not re.search(r"\{\w+\}", text)
        assert "<checkpoint>" not in text  # it would be taken for a request for one
    assert f"\n{FILE}\n" in REQUEST
    assert "STOP" in REQUEST


@pytest.mark.parametrize("reason", [StopReason.CONTEXT_EXHAUSTED, StopReason.CRASH])
def test_the_new_session_is_told_why_and_of_a_call_in_doubt(reason: StopReason) -> None:
    text = prompts.handoff_resume(
        load(prompts.HANDOFF_RESUME), file=FILE, reason=reason, call_in_doubt="rm -rf {file}"
    )
    assert "The previous session" in text
    assert "\n    rm -rf {file}\n" in text
    assert "Look first at what is there" in text


def test_a_users_own_prompt_must_name_the_file() -> None:
    for name_ in (prompts.HANDOFF_REQUEST, prompts.HANDOFF_RESUME):
        assert prompts.faults_of(name_, "Do it.") == ["missing placeholder {file}"]
        assert prompts.faults_of(name_, "Do it in {file}.") == []
    assert prompts.faults_of(prompts.LARGE_TASK, "Not now.") == []


# What is valid


def test_what_an_agent_writes_that_follows_the_request_is_valid() -> None:
    assert check(followed()) == ""
    assert check(f"```markdown\n{followed()}```\n") == ""
    assert check(followed().replace("\n", "\r\n")) == ""
    assert check(followed().replace("## ", "### ").replace("Remaining Tasks", "Next steps")) == ""
    assert check(f"---\nhandoff: h-1\n---\n\n{followed()}") == ""
    assert check(followed({**SAID, "Remaining Tasks": "[none]"})) == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ("---\nhandoff: h-1\n---\n \n", "it is empty"),
        ("## Goal\nDo it.\n", "it is shorter than 200 characters"),
        (FORM, "not filled in: Goal, Completed Work, Remaining Tasks, Do Not Redo, Key Decisions"),
        (REQUEST, "not filled in"),
        ("I did a lot, and there is some more to do. " * 20, "neither a goal nor remaining"),
        (followed() + "\n```sh\nmake test\n", "a code fence is not closed"),
        (followed()[: followed().index("- no new")], "its last heading has no text"),
        (followed({**SAID, "Goal": "TBD", "Remaining Tasks": "..."}), "neither a goal nor"),
        (followed({**SAID, "Goal": "{goal}", "Remaining Tasks": "<left>"}), "neither a goal nor"),
    ],
)
def test_what_says_too_little_or_breaks_off_is_not_valid(text: str, why: str) -> None:
    assert why in check(text)


def test_a_document_about_checkpoint_tags_is_a_document() -> None:
    said = {**SAID, "Key Decisions": "The tag is <checkpoint>, and\n<checkpoint>\nbegins a block."}
    assert check(followed(said)) == ""
    assert check(f"<checkpoint>\n{followed()}</checkpoint>\n") == ""


@given(st.text(max_size=400) | st.text("#`~-[]{}<>\n aGoal:*", max_size=400))
def test_any_text_is_judged_and_adding_to_it_loses_nothing(text: str) -> None:
    added = complete(text, Checkpoint(task="The task."))
    assert added.startswith(text)
    found = recorded(added)
    assert found is not None
    assert found.task == "The task."
    assert isinstance(check(text), str)
    assert complete(added, Checkpoint(task="The task.")) == added
    assert check(text) != "" or check(added) == ""


# What segue makes


def test_a_documents_name_has_its_time_and_its_id() -> None:
    assert name(START + 9 * 3600 + 12 * 60, "h-7f") == "handoff-20261116T0912-h-7f.md"
    assert names_in(f"Read {FILE}, `{FILE}`.") == ("handoff-20261116T0000-h-1.md",)


def test_the_rule_made_document_tells_all_that_is_known_without_secrets() -> None:
    text = own_text(
        Checkpoint(
            task="# Port it\n\nUse ```\nfences\n``` and API_KEY=sk-ant-api03-abcdef123456789",
            instructions=("Use tabs.", "password: hunter2x!"),
            todos=(Todo("one", "completed"), Todo("two", "pending")),
            files=(FileChanged("src/a.py", "00ff"),),
            commands=(Command("pytest -q", 1, True),),
            last_words="```python\nhalf a block",
            git_status=" M src/a.py\n?? ```",
            git_diff_stat=" ```.md | 2 +-",
        )
    )
    assert check(text) == ""
    head = text.partition("\n---\n")[0].split("\n")
    assert head[1:] == [
        'handoff: "h-1"',
        'agent: "claude"',
        'session: "s1"',
        'project: "/p"',
        'made_by: "segue"',
        'at: "2026-11-16T00:00:00Z"',
        "context_usage: 0.8512",
    ]
    for part in ("- two\n", "src/a.py (sha256 00ff)", "pytest -q (exit code 1)", "M src/a.py"):
        assert part in text
    assert "abcdef123456789" not in text
    assert "hunter2x" not in text
    found = recorded(text)
    assert found is not None
    assert found.task == "# Port it\n\nUse ```\nfences\n``` and API_KEY=[redacted]"
    assert found.additions[0] == "Use tabs."


_WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.just("\n"), max_size=120)
_ODD = st.sampled_from(["```", "~~~~", "---", "## Recorded by segue", f"### {TASK}"])
_TEXTS = _WORDS | _ODD | st.lists(_ODD | _WORDS, max_size=4).map("\n".join)


@settings(max_examples=60)
@given(_TEXTS, st.lists(_TEXTS, max_size=3), _TEXTS, _TEXTS)
def test_any_rule_made_document_is_valid_and_holds_the_users_words(
    task: str, said: list[str], words: str, state: str
) -> None:
    checkpoint = Checkpoint(
        task=task,
        instructions=tuple(said),
        todos=(Todo(words),) if words.strip() else (),
        last_words=words,
        git_status=state,
        git_diff_stat=state,
        summary=AgentSummary(raw=words) if len(words) % 2 else None,
        commands=(Command(state),),
    )
    text = own_text(checkpoint)
    assert check(text) == ""
    expected = Recorded(task.strip("\n"), tuple(each.strip("\n") for each in said if each.strip()))
    found = recorded(text)
    assert found == expected or "[redacted]" in text or not task.strip("\n").strip()
    # The same words, once more handed on, are the same.
    again = complete(followed(), text)
    assert again.startswith(followed())
    assert recorded(again) == found
    assert check(again) == ""


def test_what_is_recorded_is_added_once_and_what_the_session_wrote_stays() -> None:
    checkpoint = Checkpoint(task="Port it.", files=(FileChanged("a.py"),), git_status=" M a.py")
    added = complete(followed(), checkpoint)
    assert added.startswith(followed())
    assert "\n## Recorded by segue\n" in added
    assert "```text\nPort it.\n```" in added
    assert "### git status\n>  M a.py" in added
    assert complete(added, checkpoint) == added
    assert complete(added, own_text(checkpoint)) == added
    # A session that copied an old part, or wrote one itself, has the user's words put right.
    forged = followed() + "\n## Recorded by segue\n\n### The task, word for word\n\nNothing.\n"
    found = recorded(complete(forged, checkpoint))
    assert found is not None
    assert found.task == "Port it."


def test_a_task_is_cut_only_beyond_any_sense_and_control_characters_go() -> None:
    text = own_text(Checkpoint(task="a\x1b[31mb\x00\r\nc\ud800" + "\nline" * 30_000))
    found = recorded(text)
    assert found is not None
    assert found.task.startswith("ab\nc?\nline\n")
    assert found.task.endswith("left out …]")
    assert len(text.encode()) < 1 << 20


# From a session


def made(path: Path | str, cwd: Path, agent: str = "claude", session: str = SESSION) -> str:
    return own_document(
        agent, str(path), session, str(cwd), id="h-2", at=START, percent=85.0, env=os.environ
    )


def test_a_sessions_records_and_its_repository_make_a_document(tmp_path: Path) -> None:
    project = tmp_path / "a $(touch x) b"
    project.mkdir()
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    (project / "a.py").write_text("x\n")
    task = "Port it, with `$(touch x)`.\n" + "More of the task. " * 400
    file = claude_session(
        tmp_path,
        prompt(task),
        reply(1, 100, content=call("Write", file_path=str(project / "a.py"), content="x")),
        prompt("Use tabs."),
        reply(2, 200, content=[{"type": "text", "text": "I will.\n```\nhalf"}]),
    )
    text = made(file, project)
    assert check(text) == ""
    assert recorded(text) == Recorded(task.strip(), ("Use tabs.",))
    for part in ("- a.py (sha256 ", "> ?? a.py", "> I will."):
        assert part in text
    # By its id alone, in the agent's home.
    env = {"CLAUDE_CONFIG_DIR": str(tmp_path / ".claude"), "HOME": str(tmp_path)}
    by_id = own_document(
        "claude", "", SESSION, str(project), id="h-2", at=START, percent=85.0, env=env
    )
    assert by_id == text


def test_the_users_words_outlive_any_number_of_handoffs(tmp_path: Path) -> None:
    folder = tmp_path / "with blanks" / ".segue" / "handoffs"
    folder.mkdir(parents=True)
    said = "Port it."
    first = claude_session(tmp_path, prompt(said), prompt("Use tabs."), reply(1, 100))
    text = complete(followed(), made(first, tmp_path))
    for number in range(3):
        document = folder / name(START, f"h-{number}")
        document.write_text(text)
        told = prompts.handoff_resume(load(prompts.HANDOFF_RESUME), file=str(document))
        later = claude_session(
            tmp_path,
            prompt(told),
            prompt(f"And {number}."),
            reply(1, 100),
            session=f"2222222{number}-2222-4333-8444-555555555555",
        )
        text = made(later, tmp_path)
    assert recorded(text) == Recorded(said, ("Use tabs.", "And 0.", "And 1.", "And 2."))


def test_opencodes_database_makes_a_document(tmp_path: Path) -> None:
    db = OpencodeDb(tmp_path / "opencode.db")
    db.session("ses_1", "/p", START)
    db.message("msg_0000", "ses_1", START, role="user")
    db.part("prt_0000", "msg_0000", "ses_1", START, type="text", text="The task.")
    db.answer(1, "ses_1", START + 1, 1_000)
    db.message("msg_0002", "ses_1", START + 2, role="user")
    db.part("prt_0002", "msg_0002", "ses_1", START + 2, type="text", text="More.")
    text = made(db.path, tmp_path, "opencode", "ses_1")
    assert recorded(text) == Recorded("The task.", ("More.",))


def test_a_session_that_cannot_be_read_makes_a_document_that_says_so(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for agent in ("claude", "codex", "opencode", "nobody"):
        for where in ("none", "pipe", ".", "a\0b"):
            text = made(f"{tmp_path}/{where}", tmp_path, agent)
            assert check(text) == ""
            assert "Ask the user for the task" in text


# Files


def test_a_document_is_read_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "h.md"
    file.write_bytes("ä\r\n".encode())
    assert read_document(str(file)) == ("ä\r\n", "")
    assert read_document(str(file), project=str(tmp_path)) == ("ä\r\n", "")
    (tmp_path / "in.md").symlink_to(file)
    assert read_document(str(tmp_path / "in.md"), project=str(tmp_path)) == ("ä\r\n", "")


def test_what_is_not_a_document_is_refused_with_a_reason(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "secret").write_text("x")
    (project / "out.md").symlink_to(tmp_path / "secret")
    (project / "nowhere.md").symlink_to(tmp_path / "none")
    (project / "folder.md").mkdir()
    os.mkfifo(project / "pipe.md")
    (project / "large.md").write_bytes(b"x" * ((1 << 20) + 1))
    (project / "latin.md").write_bytes(b"\xe4")
    (project / "binary.md").write_bytes(b"a\0b")
    within = {"project": str(project)}
    for where, more, why in (
        ("out.md", within, "not inside"),
        ("nowhere.md", within, "not inside"),
        ("../secret", within, "not inside"),
        ("out.md", {}, "it is a link"),
        ("none.md", within, "no such file"),
        ("folder.md", within, "not a plain file"),
        ("pipe.md", within, "not a plain file"),
        ("large.md", within, "larger than 1 MB"),
        ("latin.md", within, "not UTF-8"),
        ("binary.md", within, "not text"),
        ("a\0b", {}, "cannot be read"),
    ):
        text, said = read_document(f"{project}/{where}", **more)
        assert (text, why in said) == ("", True), (where, said)


def test_what_would_make_a_document_too_large_is_not_added() -> None:
    room = MAX_BYTES - len(followed().encode())
    text = followed() + "\nx" * (room // 2 - 50)
    assert check(text) == ""
    assert (
        complete(text, Checkpoint(task="The task, which takes more room than is left. " * 9))
        == text
    )


def test_a_document_of_many_fences_is_read_to_its_end() -> None:
    with stopped_hang():
        recorded("## Recorded by segue\n" + "### a\n```\n```\n" * 250_000)


def test_a_repositorys_link_in_the_place_of_the_ignore_file_is_not_followed(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".segue").mkdir(parents=True)
    (project / ".segue/.gitignore").symlink_to(tmp_path / "outside")
    folder = handoffs.folder_of(str(project), ".segue/handoffs")
    handoffs.write(folder, "handoff-20261116T0000-h-1.md", "text")
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize(
    ("remaining", "is_nothing"),
    [
        ("None.", True),
        ("none: say so and end", True),
        ("- Nothing left to do.", True),
        ("**No remaining tasks**", True),
        ("All 12 steps are done.", True),
        ("N/A", True),
        ("None of the tests pass: fix them", False),
        ("Nothing but step 9", False),
        ("None, except the docs", False),
        ("No remaining tasks in core; still: the docs", False),
        ("1. step 9\n2. none", False),
        ("from step 4 on", False),
        ("", False),
    ],
)
def test_a_document_says_that_nothing_is_left_only_if_it_says_no_more(
    remaining: str, is_nothing: bool
) -> None:
    text = f"# Handoff\n\n## Goal\nAll steps.\n\n## Remaining Tasks\n{remaining}\n"
    assert says_nothing_left(text) is is_nothing


def test_a_rule_made_document_tells_what_only_the_conversation_held(tmp_path: Path) -> None:
    """A word that a tool printed once, and why something was decided: no file holds either."""
    turns, planted = conversations.conversation(8, 0.2)
    path = conversations.write(tmp_path, "claude", turns)
    document = own_document(
        "claude",
        str(path),
        conversations.SESSION,
        str(tmp_path),
        id="h-1",
        at=1.0,
        percent=88.0,
        env={},
    )
    missed = [(fact.kind, fact.depth) for fact in planted if fact.needle not in document]
    assert len(missed) <= len(planted) // 20, missed
    assert check(document) == ""


def test_a_rule_made_document_tells_what_the_sessions_before_it_knew(tmp_path: Path) -> None:
    said = [{"type": "text", "text": "I decided to use umbra for the lease, as it is free."}]
    first = claude_session(
        tmp_path, prompt("The task."), reply(1, 100, content=said), session="before"
    )
    path = claude_session(tmp_path, prompt("Go on with the work."), reply(1, 100))
    told = own_document(
        "claude",
        str(path),
        SESSION,
        str(tmp_path),
        id="h-1",
        at=1.0,
        percent=88.0,
        env={},
        earlier=[Predecessor("claude", "before", str(first))],
    )
    assert "umbra" in told
