"""The job: its scripts, killed anywhere, and what is read from the repository."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.waiting import until

from segue.drill.model.ask import Part
from segue.drill.model.memory import recall
from segue.drill.plays import facts, job
from segue.drill.scenarios.types import Job, ScenarioFact
from segue.errors import StateError

SMALL = Job(steps=3, output_bytes=200)
COMMANDS = ("awk", "cat", "dirname", "git", "mv", "rm", "sleep")


def sh(folder: Path, *words: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        ["sh", *words],
        cwd=folder,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    job.make(folder, SMALL)
    return folder


def test_each_step_prints_its_line_its_bytes_and_its_line_again_and_is_a_commit(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "project"
    with_spike = Job(steps=3, output_bytes=500, spike_step=2, spike_bytes=4_000)
    job.make(folder, with_spike)
    for step, size in ((1, 500), (2, 4_000), (3, 500)):
        said = sh(folder, "job/step", str(step))
        line = f"step {step} of 3 done\n"
        assert said.startswith(line)
        assert said.endswith("\n" + line)
        assert len(said) == size + 2 * len(line)
        found = job.check(folder, with_spike, finished=step == 3)
        assert found == job.Continuity(done=tuple(range(1, step + 1)))
        assert found.is_whole
    assert sh(folder, "job/show") == "step 1 of 3 done\nstep 2 of 3 done\nstep 3 of 3 done\n"


def test_the_output_of_a_step_does_not_compress_to_nothing(repo: Path) -> None:
    import zlib

    job.make(repo.parent / "big", Job(steps=2, output_bytes=8_000))
    one, two = (sh(repo.parent / "big", "job/step", n) for n in "12")
    assert len(zlib.compress(one.encode())) > 2_500
    assert len(set(one.split("\n")) & set(two.split("\n"))) <= 1


def test_a_step_done_again_is_repeated_and_a_step_left_out_is_lost(repo: Path) -> None:
    for step in ("1", "3", "3"):
        sh(repo, "job/step", step)
    found = job.check(repo, SMALL, finished=False)
    assert (found.done, found.lost, found.repeated) == ((1, 3, 3), (2,), (3,))
    assert not found.is_whole
    sh(repo, "job/step", "2")
    assert job.check(repo, SMALL, finished=True).out_of_order == (2,)


def test_what_is_missing_at_the_end_is_lost_only_if_it_should_be_finished(repo: Path) -> None:
    sh(repo, "job/step", "1")
    assert job.check(repo, SMALL, finished=False).is_whole
    assert job.check(repo, SMALL, finished=True).lost == (2, 3)


def test_before_the_first_step_nothing_is_shown(repo: Path) -> None:
    assert sh(repo, "job/show") == "no step is done yet\n"
    assert job.check(repo, SMALL, finished=False).done == ()
    assert not recall([Part("tool", sh(repo, "job/show"))], 3).known


@pytest.mark.parametrize("word", ["", "0", "4", "-1", "1x", "99999999999999999999", "../1"])
def test_an_invalid_step_is_refused(repo: Path, word: str) -> None:
    done = subprocess.run(["sh", "job/step", word], cwd=repo, capture_output=True)
    assert done.returncode == 2
    assert job.check(repo, SMALL, finished=False).done == ()


def test_the_prompt_tells_the_number_of_steps_and_nothing_that_a_model_could_take_for_done(
    repo: Path,
) -> None:
    said = job.prompt(Job(steps=17))
    assert "17" in said
    found = recall([Part("user", said)], 17)
    assert not found.known
    assert not found.should_look


def test_the_users_git_settings_and_hooks_do_not_count(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("pre-commit", "commit-msg", "post-commit"):
        (hooks / name).write_text("#!/bin/sh\nexit 1\n")
        (hooks / name).chmod(0o755)
    (own_home / ".gitconfig").write_text(
        f"[commit]\n\tgpgSign = true\n[core]\n\thooksPath = {hooks}\n[user]\n\tname = Somebody\n"
        f"[init]\n\ttemplateDir = {tmp_path}\n[gpg]\n\tprogram = /bin/false\n"
    )
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    job.make(tmp_path / "project", SMALL)
    sh(tmp_path / "project", "job/step", "1")
    assert job.check(tmp_path / "project", SMALL, finished=False).done == (1,)
    monkeypatch.delenv("GIT_DIR")
    told = subprocess.run(
        ["git", "log", "--format=%an"], cwd=tmp_path / "project", capture_output=True, text=True
    )
    assert set(told.stdout.split()) == {"Drill"}


def test_a_broken_git_config_of_the_user_and_hooks_in_the_repository_do_not_stop_a_step(
    own_home: Path, tmp_path: Path
) -> None:
    (own_home / ".gitconfig").write_text("[no config\n")
    folder = tmp_path / "project"
    job.make(folder, SMALL)
    hook = folder / ".git" / "hooks" / "prepare-commit-msg"
    hook.parent.mkdir()
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    sh(folder, "job/step", "1")
    assert job.check(folder, SMALL, finished=False).done == (1,)


def test_a_folder_that_is_not_a_repository_or_has_a_job_already_is_one_clear_line(
    repo: Path, tmp_path: Path
) -> None:
    with pytest.raises(StateError, match="cannot be created"):
        job.make(repo, SMALL)
    (tmp_path / "bare").mkdir()
    with pytest.raises(StateError, match="git log failed") as told:
        job.check(tmp_path / "bare", SMALL, finished=False)
    assert "\n" not in str(told.value)


def test_without_git_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StateError, match="git is not on the PATH"):
        job.make(tmp_path / "project", SMALL)


# Killed


def traps(folder: Path) -> dict[str, str]:
    """A PATH on which every command of a step counts itself, and kills all at a chosen one."""
    folder.mkdir()
    for name in COMMANDS:
        real = subprocess.run(["which", name], capture_output=True, text=True).stdout.strip()
        trap = folder / name
        run = "true" if name == "sleep" else f'{real} "$@"'
        trap.write_text(
            f"#!/bin/sh\n"
            f'n=$(($(/bin/cat "{folder}/count" 2>/dev/null || echo 0) + 1))\n'
            f'echo $n >"{folder}/count"\n'
            f'[ "$n $WHEN" = "$AT before" ] && kill -9 0\n'
            f'[ "$n $WHEN" = "$AT inside" ] && touch $LOCKS && kill -9 0\n'
            f"{run}\ncode=$?\n"
            f'[ "$n $WHEN" = "$AT after" ] && kill -9 0\n'
            f"exit $code\n"
        )
        trap.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def killed_at(folder: Path, trap: dict[str, str], at: int, when: str, locks: str = "") -> bool:
    """Runs step 2; whether it came to the place where it is killed."""
    (Path(trap["PATH"].split(":")[0]) / "count").unlink(missing_ok=True)
    env = {**os.environ, **trap, "AT": str(at), "WHEN": when, "LOCKS": locks}
    done = subprocess.run(
        ["sh", "job/step", "2"], cwd=folder, env=env, capture_output=True, start_new_session=True
    )
    return done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_between_any_two_commands_and_looked_after_each_step_is_done_once(
    tmp_path: Path, when: str
) -> None:
    trap = traps(tmp_path / "bin")
    committed = []
    for at in range(1, 30):
        folder = tmp_path / f"project-{at}"
        job.make(folder, SMALL)
        sh(folder, "job/step", "1")
        if not killed_at(folder, trap, at, when):
            break
        assert job.current(folder) is None
        is_done = "step 2 of 3 done" in sh(folder, "job/show")
        committed.append(is_done)
        if not is_done:
            sh(folder, "job/step", "2")
        sh(folder, "job/step", "3")
        assert job.check(folder, SMALL, finished=True) == job.Continuity(done=(1, 2, 3)), at
        assert not (folder / "job" / "running").exists()
    assert len(committed) >= 7  # it was killed at every command, before the commit and after it
    assert committed == sorted(committed)
    assert set(committed) == {False, True}


@pytest.mark.parametrize("lock", ["index.lock", "HEAD.lock", "refs/heads/main.lock"])
def test_killed_inside_git_its_lock_does_not_stop_the_next_run(tmp_path: Path, lock: str) -> None:
    trap = traps(tmp_path / "bin")
    folder = tmp_path / "project"
    job.make(folder, SMALL)
    sh(folder, "job/step", "1")
    assert killed_at(folder, trap, 5, "inside", f".git/{lock}")
    assert (folder / ".git" / lock).exists()
    for step in ("2", "3"):
        sh(folder, "job/step", step, env={**trap, "AT": "0"})
    assert job.check(folder, SMALL, finished=True) == job.Continuity(done=(1, 2, 3))


def test_the_running_step_is_known_and_a_killed_one_does_not_run(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    job.make(folder, Job(steps=3, output_bytes=10, step_s=60))
    assert job.current(folder) is None
    step = subprocess.Popen(
        ["sh", "job/step", "2"], cwd=folder, stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        until(lambda: job.current(folder) == 2 or step.poll() is not None)
        assert step.poll() is None
    finally:
        os.killpg(step.pid, signal.SIGKILL)
    os.waitid(os.P_PID, step.pid, os.WEXITED | os.WNOWAIT)  # dead, and nobody has asked for it yet
    assert job.current(folder) is None
    step.wait()
    assert job.current(folder) is None
    assert (folder / "job" / "running").exists()


@given(st.lists(st.integers(1, 6), max_size=12), st.booleans())
def test_whole_is_exactly_the_steps_in_order(done: list[int], finished: bool) -> None:
    found = job.judge(done, Job(steps=6), finished)
    in_order = done == list(range(1, len(done) + 1))
    assert found.is_whole == (in_order and (len(done) == 6 or not finished))
    assert set(found.repeated) == {step for step in done if done.count(step) > 1}


FACTS = Job(
    steps=4,
    output_bytes=50,
    facts=[
        ScenarioFact(kind="printed", told_in=1, needed_from=3),
        ScenarioFact(kind="decided", told_in=1, needed_from=3),
        ScenarioFact(kind="changed", told_in=1, changed_in=2, needed_from=4),
    ],
)


def test_a_step_that_misses_a_fact_is_not_done_and_no_file_holds_it(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    job.make(folder, FACTS)
    told = [Part("tool", sh(folder, "job/step", "1"))]
    old = facts.stated(told, FACTS)
    told.append(Part("tool", sh(folder, "job/step", "2")))
    told.append(Part("assistant", facts.said_before(FACTS, 1)))
    words = facts.stated(told, FACTS)
    assert sorted(words) == [1, 2, 3]
    assert words[3] != old[3]
    for words_given in ([], [words[1]], [words[1], "choice-1"], [words[2], words[1]]):
        done = subprocess.run(
            ["sh", "job/step", "3", *words_given], cwd=folder, capture_output=True
        )
        assert done.returncode == 1
    assert job.check(folder, FACTS, finished=False).done == (1, 2)
    sh(folder, "job/step", *f"3{facts.arguments(FACTS, 3, words)}".split())
    stale = {**words, 3: old[3]}
    line = f"4{facts.arguments(FACTS, 4, stale)}".split()
    assert subprocess.run(["sh", "job/step", *line], cwd=folder).returncode == 1
    sh(folder, "job/step", *f"4{facts.arguments(FACTS, 4, words)}".split())
    assert job.check(folder, FACTS, finished=True).is_whole
    kept = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert not [word for word in words.values() if word.encode() in kept]


SPOKEN = Job(
    steps=6,
    output_bytes=50,
    step_s=0.3,
    facts=[
        ScenarioFact(kind="told", told_in=2, needed_from=4),
        ScenarioFact(kind="corrected", told_in=1, changed_in=2, needed_from=4),
        ScenarioFact(kind="forbidden", told_in=2, needed_from=4),
        ScenarioFact(kind="forbidden", told_in=0, needed_from=5),
    ],
)


def test_what_the_user_says_counts_and_what_they_take_back_does_not(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    task = Part("user", job.make(folder, SPOKEN))
    printed = Part("tool", sh(folder, "job/step", "1"))
    assert [job.said_by_user(folder, SPOKEN, step) for step in (1, 3)] == ["", ""]
    said = Part("user", job.said_by_user(folder, SPOKEN, 2))
    assert "Do not touch keep/3." in said.text
    old = facts.stated([task, printed], SPOKEN)
    words = facts.stated([task, printed, said], SPOKEN)
    assert (sorted(old), sorted(words)) == ([2, 4], [1, 2, 3, 4])
    assert words[2] != old[2]
    assert facts.stated([said, printed], SPOKEN) == facts.stated([printed, said], SPOKEN)
    for step in (2, 3):
        sh(folder, "job/step", str(step))
    stale = f"4{facts.arguments(SPOKEN, 4, {**words, 2: old[2]})}".split()
    assert subprocess.run(["sh", "job/step", *stale], cwd=folder).returncode == 1
    sh(folder, "job/step", *f"4{facts.arguments(SPOKEN, 4, words)}".split())
    assert job.check(folder, SPOKEN, finished=False).done == (1, 2, 3, 4)


def test_a_model_that_was_not_told_touches_what_must_not_be_touched(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    job.make(folder, SPOKEN)
    prompts = [Part("user", "do not touch keep/3"), Part("user", "Do not touch keep/4")]
    told = facts.stated(prompts, SPOKEN)
    assert facts.meddled(SPOKEN, 3, {}) == ""
    assert facts.meddled(SPOKEN, 6, told) == ""
    assert job.touched(folder, SPOKEN) == []
    subprocess.run(["sh", "-c", facts.meddled(SPOKEN, 4, {}) + "true"], cwd=folder, check=True)
    assert job.touched(folder, SPOKEN) == ["keep/3"]
    subprocess.run(["sh", "-c", facts.meddled(SPOKEN, 5, told) + "rm keep/4"], cwd=folder)
    assert job.touched(folder, SPOKEN) == ["keep/3", "keep/4"]


def test_a_faithful_summary_tells_all_kinds_of_facts_and_is_understood() -> None:
    words = {1: "w123456", 2: "choice-12345", 3: "keep/3"}
    assert facts.stated([Part("user", "\n".join(facts.lines(words, SPOKEN)))], SPOKEN) == words


def worded(prints: Literal["words", "log", "tests", "data"]) -> Job:
    return Job(
        steps=7,
        output_bytes=2_000,
        step_s=0.3,
        prints=prints,
        facts=[
            ScenarioFact(
                kind="printed", told_in=1, needed_from=7, wording='"held by": "{}"', amid=True
            ),
            ScenarioFact(
                kind="changed",
                told_in=1,
                changed_in=[2, 4],
                needed_from=7,
                wording="100% sure: it listens on {} now",
                value="number",
                amid=True,
            ),
            ScenarioFact(kind="decided", told_in=2, needed_from=7, wording="it goes by {} here"),
            ScenarioFact(
                kind="corrected",
                told_in=1,
                changed_in=3,
                needed_from=7,
                wording="-> das Verzeichnis heißt {}",
                value="letters",
            ),
            ScenarioFact(kind="told", told_in=3, needed_from=7, wording="{} is the customer's id"),
        ],
    )


@pytest.mark.parametrize("prints", ["words", "log", "tests", "data"])
def test_facts_in_words_of_the_scenarios_own_are_printed_said_and_understood(
    tmp_path: Path, prints: Literal["words", "log", "tests", "data"]
) -> None:
    chosen, folder = worded(prints), tmp_path / "project"
    parts = [Part("user", job.make(folder, chosen))]
    for step in range(1, 7):
        parts.append(Part("assistant", facts.said_before(chosen, step)))
        printed = sh(folder, "job/step", str(step))
        assert 1_900 < len(printed) < 2_400
        lines = printed.strip().split("\n")
        if step == 1 and prints != "data":
            assert 5 < len(lines) // 2 - 3 < lines.index(next(x for x in lines if "held" in x))
        parts.append(Part("tool", printed))
        parts.append(Part("user", job.said_by_user(folder, chosen, step)))
    words = facts.stated(parts, chosen)
    assert sorted(words) == [1, 2, 3, 4, 5]
    for left_out in (5, 11):  # the second value, the third one
        assert facts.stated(parts[:left_out], chosen)[2] != words[2]
    marked = Part("user", f"100% sure: it listens on 20000 now (later: {words[2]})")
    assert facts.stated([marked], chosen) == {2: words[2]}
    summary = Part("user", "\n".join(facts.lines(words, chosen)).replace(" ", "\n  "))
    assert facts.stated([summary], chosen) == words
    assert "step 7 of 7 done" in sh(
        folder, "job/step", *f"7{facts.arguments(chosen, 7, words)}".split()
    )
