"""`segue doctor`: whether this machine is ready for unattended runs."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import click
import msgspec

from segue import agents as known_agents
from segue.agents import drives
from segue.agents.contracts.drive import Drive
from segue.cli.support.checkup import checks, watching
from segue.cli.support.checkup.checks import HealthCheck, Status, ask
from segue.errors import ConfigError
from segue.fleet import checkup as fleet_checkup
from segue.system.config import config
from segue.system.config.settings import Settings, load
from segue.views import printing
from segue.views import verdicts as render
from segue.views.run.block import counted

if TYPE_CHECKING:
    from segue.agents.custom.drive import Custom

TRIED = {
    "claude": "2.1.325",
    "codex": "0.166.0",
    "opencode": "1.18.33",
    "gemini": "0.61.0",
    "pi": "0.87.1",
}
"""The versions of agents that segue is tested with: the same as in scripts/agents."""

NODES = {"gemini": (20, 0), "pi": (22, 19)}
"""The oldest version of Node.js that each agent runs on."""

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}
_NAME = 11
_VERSION_S = 60.0  # for all agents together: on a busy machine, large programs start slowly
_MIN_VERSION_S = 5.0  # for each agent, even if the others have used up that time
_ASKED_AT_ONCE = 4


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(as_json: bool) -> None:
    """Check agents, tools, the state folder, clock, sleep, daemon and config, and say what to do.

    Agents are asked only for their version. The exit code is 1 if something would fail.
    """
    checks = list(examine(os.environ))
    failed = any(check.status == "fail" for check in checks)
    if as_json:
        rows = [msgspec.to_builtins(check) for check in checks]
        printing.say(render.as_json(printing.with_schema({"ok": not failed, "checks": rows})))
    else:
        for check in checks:
            printing.say("\n".join(lines(check)))
        printing.say(f"\n{summary(checks)}")
    sys.exit(1 if failed else 0)


def lines(check: HealthCheck) -> list[str]:
    """A check's result in one line, and what to do about it in another."""
    head = printing.style(
        f"{check.status:<4}", fg=_COLOURS[check.status], bold=check.status != "ok"
    )
    found = [f"{head}  {config.clean(check.name):<{_NAME}}{config.clean(check.what)}"]
    if check.do:
        found.append(f"{'':<{_NAME + 6}}{printing.style('→', dim=True)} {config.clean(check.do)}")
    return found


def summary(checks: list[HealthCheck]) -> str:
    """The last line: how many problems and warnings there are."""
    failing = sum(check.status == "fail" for check in checks)
    warned = sum(check.status == "warn" for check in checks)
    if failing:
        return f"{counted(failing, 'problem')}, {counted(warned, 'warning')}"
    return f"no problems, {counted(warned, 'warning')}" if warned else "no problems"


def examine(env: Mapping[str, str]) -> Iterator[HealthCheck]:
    """All checks, in the order in which they are shown."""
    from segue.drill.plays import enclosure

    why_not = enclosure.why_not()
    settings, configs = _config(env)
    yield from agents(env, settings, is_enclosing=not why_not)
    yield from checks.tools(env)
    yield from checks.state_folder()
    yield from checks.database()
    yield from checks.clock()
    yield from checks.sleep(env)
    yield from checks.namespaces(why_not)
    yield from watching.examine(env)
    for found in fleet_checkup.examine(env):
        yield HealthCheck(name="fleet", status=found.status, what=found.what, do=found.do)
    yield from configs
    yield from _wordings()


def agents(
    env: Mapping[str, str], settings: Settings | None, *, is_enclosing: bool
) -> Iterator[HealthCheck]:
    """Which agents are installed, whether segue is tested with these versions, and whether they can
    work here unattended. Agents are started only for their version, with an empty home folder and,
    where possible, without a network."""
    own = settings.agents if settings else {}
    names = [*(n for n in drives.names() if n not in own), *own]
    found = {name: drive for name in names if (drive := _drive(name, own)) is not None}
    commands = {name: drive.find(env) for name, drive in found.items()}
    installed = {name: argv for name, argv in commands.items() if argv}
    questions = {
        name: tuple(found[name].version(argv))
        for name, argv in installed.items()
        if name not in own or own[name].like
    }
    versions = _versions(set(questions.values()), env, is_enclosing)
    for name, argv in installed.items():
        version = versions[questions[name]] if name in questions else ""
        yield _agent(name, argv, version, TRIED.get(name, ""))
        own_flags = settings.flags.get(name, ()) if settings else ()
        yield from _unattended(name, found[name], argv, own_flags, env)
        if os.path.basename(argv[0]) == "node" and name in NODES:
            yield from _node(name, argv[0])
    yield from _missing(found, installed, env, settings.agent if settings else "")
    for fault in known_agents.broken():
        yield HealthCheck(name="plug-in", status="fail", what=fault)


def _unattended(
    name: str, drive: Drive, argv: tuple[str, ...], flags: tuple[str, ...], env: Mapping[str, str]
) -> Iterator[HealthCheck]:
    """A warning for everything that keeps an agent from working unattended in this folder."""
    from segue.runs.starting import preflight

    for line in preflight.permissions(name, drive, argv, flags=flags, env=env, cwd=os.getcwd()):
        what, _, do = line.partition("; ")
        do = do.replace("add -- ", f'segue run --agent {name} "TASK" -- ')
        yield HealthCheck(name=name, status="warn", what=what.removeprefix(f"{name} "), do=do)


def _drive(name: str, own: "Mapping[str, Custom]") -> Drive | None:
    if name not in own:
        return drives.find(name)
    from segue.agents.custom.drive import drive_of

    return drive_of(name, own[name])


def _missing(
    found: Mapping[str, Drive],
    installed: Mapping[str, tuple[str, ...]],
    env: Mapping[str, str],
    chosen: str,
) -> Iterator[HealthCheck]:
    absent = [name for name in found if name not in installed]
    if chosen and chosen not in installed:
        how = found[chosen].install if chosen in found else "segue config show"
        what = "chosen in the config, but not installed"
        yield HealthCheck(name=chosen, status="fail", what=what, do=how)
    for name in absent:
        if name != chosen and (program := shutil.which(name, path=env.get("PATH"))):
            what = f"{program} exists but cannot be started: its own program or node is missing"
            yield HealthCheck(name=name, status="warn", what=what, do=found[name].install)
    if not installed:
        do = " or ".join(found[name].install for name in absent[:2])
        what = "no agent that segue can run is installed; `segue drill` works without one"
        yield HealthCheck(name="agents", status="fail", what=what, do=do)
    elif absent:
        yield HealthCheck(name="agents", status="ok", what=f"not installed: {', '.join(absent)}")


def _agent(name: str, argv: tuple[str, ...], version: str, tried: str) -> HealthCheck:
    place = argv[-1] if os.path.basename(argv[0]) == "node" else argv[0]
    if not tried:
        return HealthCheck(name=name, status="ok", what=f"{version} {place}".strip())
    if not version:
        what = f"does not report its version: {place}"
        return HealthCheck(name=name, status="warn", what=what, do=f"{place} --version")
    mine, ours = numbers(version), numbers(tried)
    if mine == ours:
        return HealthCheck(name=name, status="ok", what=f"{version}, as tested")
    age = "older" if mine < ours else "newer"
    what = f"{version}, {age} than {tried}, the version segue was tested with"
    is_near = mine > ours and mine[:2] == ours[:2]
    status: Status = "ok" if is_near else "warn"
    return HealthCheck(
        name=name, status=status, what=what, do="" if is_near else f"segue drill --agent {name}"
    )


def _node(name: str, node: str) -> Iterator[HealthCheck]:
    version = ask([node, "--version"]).strip().lstrip("v")
    least = NODES[name]
    if version and numbers(version)[:2] < least:
        what = f"{version} is too old for {name}, which needs {'.'.join(map(str, least))}"
        yield HealthCheck(name="node", status="fail", what=what, do="install a newer Node.js")


def numbers(version: str) -> tuple[int, ...]:
    """A version such as 2.1.325 as numbers, for comparisons."""
    parts = version.split("-")[0].split("+")[0].split(".")
    return tuple(int(part) if part.isdecimal() else 0 for part in parts)


def _versions(
    questions: Iterable[tuple[str, ...]], env: Mapping[str, str], is_enclosing: bool
) -> dict[tuple[str, ...], str]:
    """The version that each command reports; "" if it reports none. A command that several agents
    share is started once. All together have `_VERSION_S`, but each has at least
    `_MIN_VERSION_S`."""
    until = time.monotonic() + _VERSION_S

    def answer(argv: tuple[str, ...]) -> str:
        patience_s = max(_MIN_VERSION_S, until - time.monotonic())
        return _version(argv, env, is_enclosing, patience_s)

    asked = list(questions)
    with ThreadPoolExecutor(max_workers=_ASKED_AT_ONCE) as pool:
        return dict(zip(asked, pool.map(answer, asked), strict=True))


def _version(
    argv: tuple[str, ...], env: Mapping[str, str], is_enclosing: bool, max_s: float
) -> str:
    from segue.drill.plays import enclosure

    with tempfile.TemporaryDirectory(prefix="segue-doctor-", ignore_cleanup_errors=True) as home:
        variables = {name: env[name] for name in ("PATH", "LANG", "LC_ALL", "TZ") if name in env}
        bare = {**variables, "HOME": home, "TMPDIR": home, "TERM": "dumb"}
        version = ask(enclosure.command(argv) if is_enclosing else argv, bare, max_s)
    words = [word.strip("v(),") for word in version.split()]
    return next((word for word in words if word[:1].isdigit()), "")


def _config(env: Mapping[str, str]) -> tuple[Settings | None, list[HealthCheck]]:
    try:
        settings = load(os.getcwd(), env)
    except ConfigError as fault:
        return None, [HealthCheck(name="config", status="fail", what=str(fault))]
    except OSError as fault:
        return None, [HealthCheck(name="config", status="fail", what=f"no working folder: {fault}")]
    files = [str(f) for f in (settings.user_file, settings.project_file) if f and f.exists()]
    if not settings.notes:
        detail = ", ".join(files) or "none: defaults apply"
        return settings, [HealthCheck(name="config", status="ok", what=detail)]
    do = "segue config show"
    return settings, [
        HealthCheck(name="config", status="warn", what=note, do=do) for note in settings.notes
    ]


def _wordings() -> Iterator[HealthCheck]:
    from segue.core.stops.text.wordings import Catalogue
    from segue.system.config import wordings

    files = config.wording_files()
    if not files:
        return
    catalogue: Catalogue = wordings.load(files, packaged=False)
    for fault in catalogue.faults:
        do = "segue wordings check"
        yield HealthCheck(name="wordings", status="warn", what=f"left out: {fault}", do=do)
    if not catalogue.faults:
        yield HealthCheck(
            name="wordings", status="ok", what=f"{len(catalogue.wordings)} of your own"
        )
