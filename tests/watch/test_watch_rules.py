"""The policy for each watched session: which files count, and what a broken one does."""

import os
from pathlib import Path

import pytest

from segue.core.stops.reasons import StopReason
from segue.errors import ConfigError
from segue.watch.handoffs.messages import Messages
from segue.watch.rules import Rules


@pytest.fixture
def user() -> Path:
    """The user's config."""
    file = Path(os.environ["SEGUE_HOME"], "config.toml")
    file.parent.mkdir()
    return file


@pytest.fixture
def project(own_home: Path) -> Path:
    folder = own_home / "code" / "x"
    (folder / "sub").mkdir(parents=True)
    return folder


def rules(*, auto: bool = False, auto_in: tuple[Path, ...] = ()) -> Rules:
    return Rules(os.environ, auto=auto, auto_in=[str(folder) for folder in auto_in])


def mark(found: Rules, folder: Path | str) -> float:
    return found.policy("claude", "m", str(folder)).hard_mark


def test_each_folder_gets_its_projects_policy(user: Path, project: Path) -> None:
    user.write_text(
        '[policy]\nhard_mark = 0.8\n[policy.projects."~/code/x/sub"]\nhard_mark = 0.75\n'
        "[policy.models.opus]\nhard_mark = 0.9\n"
    )
    (project / ".segue.toml").write_text("[policy]\nhard_mark = 0.82\n")
    found = rules()
    assert [mark(found, f) for f in (project, "/", "", "/nowhere")] == [0.82, 0.8, 0.8, 0.8]
    assert found.policy("claude", "opus-5", "/").hard_mark == 0.9
    (project / ".segue.toml").unlink()
    assert mark(rules(), project / "sub") == 0.75


def test_folders_of_one_project_share_what_was_read(project: Path) -> None:
    found = rules()
    (project / ".segue.toml").write_text("[policy]\nhard_mark = 0.8\n")
    inside = [project, project / "sub", *(project / "sub" / str(n) for n in range(50))]
    assert {mark(found, folder) for folder in inside} == {0.8}
    for number in range(500):
        found.policy("claude", "m", f"/elsewhere/{number}")
    assert len({id(each) for each in found._known.values()}) == 2
    assert found.messages(str(project)) is found.messages(str(project / "sub"))


def acts(found: Rules, folder: Path | str, agent: str = "claude") -> tuple[bool, bool]:
    policy = found.policy(agent, "m", str(folder))
    return policy.auto_handoff, policy.auto_resume


def test_auto_acts_everywhere_or_below_a_folder(project: Path, own_home: Path) -> None:
    assert acts(rules(), project) == (False, False)
    assert acts(rules(auto=True), project) == acts(rules(auto=True), "/") == (True, True)
    within = rules(auto=True, auto_in=(project,))
    assert acts(within, project / "sub") == (True, True)
    assert acts(within, own_home / "code") == (False, False)
    assert acts(within, f"{project}y") == (False, False)
    link = own_home / "link"
    link.symlink_to(project)
    assert acts(rules(auto=True, auto_in=(link,)), project) == (True, True)


def test_auto_does_not_act_where_the_config_says_no(user: Path, project: Path) -> None:
    user.write_text(
        '[policy]\nauto_resume = false\n[policy.projects."~/code/x"]\nauto_handoff = false\n'
        "[policy.agents.codex]\nauto_resume = false\n"
    )
    found = rules(auto=True)
    assert acts(found, "/") == (True, True)
    assert acts(found, project / "sub") == (False, True)
    assert acts(found, "/", "codex") == (True, False)


def test_what_the_config_switches_on_is_reported(user: Path) -> None:
    assert rules(auto=True).switched_on() == ""
    user.write_text(
        "[policy]\nauto_handoff = true\n"
        '[policy.projects."/code"]\nauto_resume = true\n[policy.agents.codex]\nauto_resume = true\n'
    )
    said = rules().switched_on()
    assert said == "auto_handoff in every project; auto_resume in /code, for codex"


def test_a_broken_config_keeps_a_daemon_from_starting(user: Path) -> None:
    user.write_text("[policy")
    with pytest.raises(ConfigError, match="not TOML"):
        rules()
    (user.parent / "own.md").write_text("nothing to fill in")
    user.write_text('[prompts]\nresume = "own.md"\n')
    with pytest.raises(ConfigError, match="missing placeholder"):
        rules()


def test_a_broken_config_leaves_what_was_set_before(user: Path, project: Path) -> None:
    user.write_text("[policy]\nhard_mark = 0.8\n[homes]\nclaude = ['/a']\n")
    found = rules()
    assert mark(found, project) == 0.8
    user.write_text("[policy]\nhard_mark = 'x'\n")
    (said,) = found.reload()
    assert "config.toml:2" in said
    assert said.endswith("keeping the previous settings")
    assert (mark(found, project), mark(found, "/new")) == (0.8, 0.8)
    assert found.homes == {"claude": ["/a"]}
    user.write_text("[policy]\nhard_mark = 0.81\n")
    assert found.reload() == []
    assert (mark(found, project), found.homes) == (0.81, {})


def test_a_projects_broken_file_leaves_its_former_rules_to_it_alone(
    user: Path, project: Path
) -> None:
    file = project / ".segue.toml"
    file.write_text("[policy]\nhard_mark = 0.7\nwarning_mark = 0.4\n")
    found = rules()
    for folder in (project, project / "sub", Path("/")):
        mark(found, folder)
    user.write_text("[policy]\nhard_mark = 0.9\n")
    file.write_text("[policy]\nhard_mark = 7 7\n")
    (said,) = found.reload()
    assert str(file) in said
    assert "the previous settings there" in said
    assert [mark(found, f) for f in (project, project / "sub", "/")] == [0.7, 0.7, 0.9]
    file.write_text("")
    assert found.reload() == []
    assert mark(found, project) == 0.9


def test_a_project_that_is_broken_from_the_start_has_the_users_rules(
    user: Path, project: Path
) -> None:
    user.write_text("[policy]\nhard_mark = 0.8\n")
    (project / ".segue.toml").write_text("[policy")
    found = rules()
    assert [mark(found, f) for f in (project, project, project / "sub")] == [0.8] * 3
    (note,) = found.notes
    assert note.endswith("your own config applies there")
    user.write_text("[policy]\nhard_mark = 0.9\n")
    assert len(found.reload()) == 1
    assert mark(found, project) == 0.9, "not what the user's config said before"
    (project / ".segue.toml").write_text("[policy]\nhard_mark = 0.7\nwarning_mark = 0.4\n")
    assert found.reload() == []
    assert mark(found, project) == 0.7


def asked(found: Rules, folder: Path) -> str:
    return found.messages(str(folder)).handoff_request(percent=86, file="h.md")


def test_a_broken_prompt_leaves_the_one_before(user: Path, project: Path) -> None:
    own = user.parent / "ask.md"
    own.write_text("Mine: {file}")
    user.write_text('[prompts]\nhandoff_request = "ask.md"\n')
    found = rules()
    assert asked(found, project) == "Mine: h.md"
    own.write_text("Mine: {fiel}")
    (said,) = found.reload()
    assert "unknown placeholder {fiel}" in said
    assert "keeping the previous settings" in said
    assert asked(found, project) == asked(found, Path("/new")) == "Mine: h.md"
    own.write_text("New: {file}")
    assert found.reload() == []
    assert asked(found, project) == "New: h.md"


def test_a_projects_broken_prompt_leaves_the_one_before_or_the_users(
    user: Path, project: Path
) -> None:
    (user.parent / "ask.md").write_text("Mine: {file}")
    user.write_text('[prompts]\nhandoff_request = "ask.md"\n')
    (project / ".segue.toml").write_text('[prompts]\nhandoff_request = "ask.md"\n')
    (project / "ask.md").write_text("Theirs: {file}")
    found = rules()
    assert asked(found, project) == "Theirs: h.md"
    (project / "ask.md").write_text("{nothing}")
    (said,) = found.reload()
    assert "keeping the previous text" in said
    assert asked(found, project) == "Theirs: h.md"
    fresh = rules()
    assert asked(fresh, project) == "Mine: h.md"
    assert len(fresh.notes) == 1


def test_segue_knows_its_own_words_whatever_is_in_their_blanks(tmp_path: Path) -> None:
    usual = Messages({})
    said = usual.resume(reason=StopReason.CRASH, leg=12, call_in_doubt="x\n{leg}")
    folded = said.replace("\n", "  \r\n")
    for text in (said, folded, f"\n{said}  ", usual.handoff_request(percent=9, file="f")):
        assert usual.is_own(text)
    for text in ("", "go on", "RESUMING (leg 2)", said[:200], usual.templates["resume"][::-1]):
        assert not usual.is_own(text)
    short = tmp_path / "resume.md"
    short.write_text("{reason} {note}")
    own = Messages({"resume": short})
    assert not own.is_own("go on with the parser, please, until all of it is done")
