"""An agent's own flags, as a user gives them and adds to them."""

from collections.abc import Sequence

from segue.agents.contracts.drive import Drive


def added(before: Sequence[str], more: Sequence[str], drive: Drive) -> tuple[str, ...]:
    """Both lists of flags; for a flag that may be given only once, `more` wins."""

    def stands_for(group: tuple[str, ...]) -> str:
        name = group[0].partition("=")[0]
        return drive.same_flags.get(name, name)

    new = {stands_for(group) for group in _groups(more)} - drive.repeatable
    remaining = [group for group in _groups(before) if stands_for(group) not in new]
    groups = [*remaining, *(group for group in _groups(more) if group not in remaining)]
    return tuple(word for group in groups for word in group)


def _groups(flags: Sequence[str]) -> list[tuple[str, ...]]:
    """Each flag with the words that follow it."""
    found: list[tuple[str, ...]] = []
    for word in flags:
        if word.startswith("-") or not found:
            found.append((word,))
        else:
            found[-1] = (*found[-1], word)
    return found
