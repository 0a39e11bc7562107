"""The commands that others run for segue: the client for claude, the daemon for systemd and
launchd."""

import os
import plistlib
import shlex
import sys
from collections.abc import Mapping

from segue import client
from segue.system.files import state

SERVICE = "segue.service"
LABEL = "dev.segue.watch"
_INHERITED = (
    "PATH",
    "SEGUE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
    "XDG_DATA_HOME",
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "TMUX_TMPDIR",
    "LANG",
    "LC_ALL",
)
"""Variables that a service does not inherit, and that the daemon needs to find agents and
sessions."""


def client_command(kind: str, event: str, former: str = "") -> str:
    """The shell command that starts the client. `kind` is hook or statusline, `event` the event or
    "-", and `former` the file with the user's previous status line. If segue is no longer
    installed, the command prints nothing and exits with 0: the interpreter alone would exit with 2,
    and claude would then refuse what it asked the hook about."""
    argv = client_argv(kind, event, former)
    python, script, old = shlex.quote(argv[0]), shlex.quote(argv[3]), shlex.quote(former)
    fallback = f"{{ [ -f {old} ] && exec sh {old}; exit 0; }}" if former else "exit 0"
    return f"[ -x {python} ] && [ -f {script} ] || {fallback}; exec {shlex.join(argv)}"


def client_argv(kind: str, event: str, former: str = "") -> tuple[str, ...]:
    """The same as a list of words: interpreter, -I, -S, the client and its arguments."""
    more = (former,) if former else ()
    return (sys.executable, "-I", "-S", client.__file__, kind, state.socket_path(), event, *more)


def own_argv(*words: str) -> list[str]:
    """The command of the running segue itself."""
    script = os.path.join(os.path.dirname(sys.executable), "segue")
    if os.access(script, os.X_OK):
        return [script, *words]
    return [sys.executable, "-m", "segue", *words]


def systemd_path() -> str:
    """The path of the user's systemd unit."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(home, "systemd/user", SERVICE)


def launchd_path() -> str:
    """The path of the user's plist."""
    return os.path.join(os.path.expanduser("~"), "Library/LaunchAgents", f"{LABEL}.plist")


def systemd_unit(env: Mapping[str, str]) -> str:
    """The unit. Agents that the daemon started outlive it, and /tmp is shared, because tmux uses
    it."""
    start = " ".join(_systemd(word).replace("$", "$$") for word in own_argv("watch"))
    environment = "".join(
        f"Environment={_systemd(f'{k}={v}')}\n" for k, v in inherited_env(env).items()
    )
    return (
        "[Unit]\n"
        "Description=segue watches coding agents\n"
        "\n"
        "[Service]\n"
        f"ExecStart={start}\n"
        "ExecReload=/bin/kill -HUP $MAINPID\n"
        f"{environment}"
        "Restart=on-failure\n"
        "RestartSec=5\n"
        "KillMode=process\n"
        "UMask=0077\n"
        "\n"
        "[Install]\n"
        "WantedBy=default.target\n"
    )


def launchd_plist(env: Mapping[str, str]) -> str:
    """The same for launchd, on macOS."""
    log = os.path.join(state.watch_folder(), "watch.out")
    wanted = {
        "Label": LABEL,
        "ProgramArguments": own_argv("watch"),
        "EnvironmentVariables": inherited_env(env),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "AbandonProcessGroup": True,
        "ProcessType": "Background",
        "Umask": 0o077,
        "StandardOutPath": log,
        "StandardErrorPath": log,
    }
    return plistlib.dumps(wanted, sort_keys=False).decode()


def inherited_env(env: Mapping[str, str]) -> dict[str, str]:
    """The part of the environment that the daemon needs; no keys, no tokens."""
    return {name: env[name] for name in _INHERITED if env.get(name) and env[name].isprintable()}


def _systemd(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
