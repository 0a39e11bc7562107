"""Ids of runs and tasks, as users type them."""

from collections.abc import Callable

from segue.core.nearest import did_you_mean
from segue.errors import InputError

_LIKE = 0.8  # for hints: all ids begin alike, so the usual likeness is too low


def find_id(find: Callable[[str], list[str]], name: str, *, kind: str, lists: str) -> str:
    """The id of the only run or task (`kind`) with this id, or with an id that begins so; "run-"
    and "task-" may be left out. `find` returns the ids with a prefix, and `lists` says where all
    are listed. Raises InputError if there is none, or more than one."""
    prefix = f"{kind}-"
    ids = find(name if name.startswith(prefix) else prefix + name) if name else []
    if name in ids:
        return name
    if not ids:
        hint = did_you_mean(name, find(""), least=_LIKE) or lists
        raise InputError(f"no {kind} is called {name!r}; {hint}")
    if len(ids) > 1:
        more = f" and {len(ids) - 5} more" if len(ids) > 5 else ""
        raise InputError(f"{len(ids)} {kind}s begin with {name!r}: {', '.join(ids[:5])}{more}")
    return ids[0]
