"""Answers the shell when the user presses Tab. It runs for every word, so it imports only what it
needs; click completes the options."""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress

import click
from click.shell_completion import CompletionItem, get_completion_class

from segue.views import printing

_RUNS = ("resume", "attach", "logs", "cancel", "rerun", "forget", "show")
"""Commands whose arguments are runs."""
_SESSIONS = ("rescue", "checkpoint")
"""Commands whose arguments are sessions."""
_MAX_NAMES = 50


def answer(commands: Sequence[tuple[str, str]]) -> bool:
    """Prints the completions of the word at the cursor; False if click should answer.
    `commands`: their names and descriptions."""
    shell = os.environ["_SEGUE_COMPLETE"].removesuffix("_complete")
    kind = get_completion_class(shell)
    if kind is None:
        return False
    form = kind(click.Command("segue"), {}, "segue", "_SEGUE_COMPLETE")
    args, word = form.get_completion_args()
    items = list(_items(args, word, commands))
    if not items and word.startswith("-"):
        return False
    if not items and args and args[0] in (*_RUNS, *_SESSIONS):
        return True  # print nothing: click would offer files
    if not items:
        return False
    for item in items:
        printing.say(form.format_completion(item))
    return True


def _items(
    args: Sequence[str], word: str, commands: Sequence[tuple[str, str]]
) -> Iterator[CompletionItem]:
    if not args:
        known = list(commands)
    elif args[-1] == "--agent":
        known = [(name, "") for name in _agents(args[0])]
    elif args[-1] == "--scenario":
        known = [(name, "") for name in _scenarios()]
    elif args[-1] == "--policy":
        known = [(name, "") for name in ("graduated", "continuous", "early")]
    elif args[0] in _RUNS and not word.startswith("-"):
        known = list(_runs())
    elif args[0] in _SESSIONS and not word.startswith("-"):
        known = list(_sessions())
    else:
        return
    for name, what in known:
        if name.startswith(word):
            yield CompletionItem(name, help=what or None)


def _agents(command: str) -> list[str]:
    if command == "drill":
        from segue.drill import casts

        return [*casts.NAMES, "all"]
    from segue.agents.plugins import BUILT_IN, added
    from segue.system.files.state import config_folder

    own: list[str] = []
    with suppress(OSError, ValueError):
        import tomllib

        with open(os.path.join(config_folder(), "config.toml"), "rb") as file:
            tables = tomllib.load(file).get("agents", {})
        own = [name for name in tables if isinstance(name, str)]
    return list(dict.fromkeys((*own, *BUILT_IN, *added())))


def _scenarios() -> list[str]:
    folder = os.path.join(
        os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "drill", "scenarios"
    )
    return sorted(name[:-5] for name in os.listdir(folder) if name.endswith(".toml"))


def _runs() -> Iterator[tuple[str, str]]:
    """Ids of runs with their states and tasks: those of this folder first, then by age, the newest
    first."""
    from segue.runs.store import runs_path

    sql = (
        "SELECT id, state, substr(task, 1, 60) FROM run JOIN snapshot ON run = id"
        " ORDER BY cwd <> ?, created_at DESC LIMIT ?"
    )
    with suppress(OSError, sqlite3.Error):
        place = f"file:{_quoted(runs_path())}?mode=ro"
        with closing(sqlite3.connect(place, uri=True, timeout=0.2)) as db:
            for name, state, task in db.execute(sql, (os.getcwd(), _MAX_NAMES)):
                words = " ".join(str(task).split()) if isinstance(task, str) else ""
                plain = "".join(char for char in words if char.isprintable())
                yield str(name), f"{state}: {plain}"


def _sessions() -> Iterator[tuple[str, str]]:
    """Ids and tasks of the sessions whose task the index has: those that `segue rescue` has
    listed."""
    from segue.system.files.state import index_path

    with suppress(OSError, sqlite3.Error):
        place = f"file:{_quoted(str(index_path()))}?mode=ro"
        with closing(sqlite3.connect(place, uri=True, timeout=0.2)) as db:
            for name, task in db.execute("SELECT name, task FROM task LIMIT ?", (_MAX_NAMES,)):
                plain = "".join(char for char in str(task)[:60] if char.isprintable())
                yield str(name).rpartition("#")[2], plain


def _quoted(path: str) -> str:
    from urllib.parse import quote

    return quote(path)
