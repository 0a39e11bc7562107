"""Loads the prompts: the bundled ones, or the user's own instead."""

from functools import cache
from pathlib import Path

from segue.core.handoffs.prompts import faults_of
from segue.errors import ConfigError
from segue.system.files import files

PACKAGED = Path(__file__).parents[2] / "prompts"
_MAX_BYTES = 1_000_000


@cache
def _packaged(name: str) -> str:
    return (PACKAGED / f"{name}.md").read_text(encoding="utf-8")


def load(name: str, own: Path | None = None) -> str:
    """The template with that name. Raises ConfigError if the user's own cannot be read or filled
    in: at the start of a run, not when it is needed."""
    if own is None:
        return _packaged(name)
    try:
        text = files.read_plain(own, _MAX_BYTES).decode("utf-8")
    except OSError as fault:
        raise ConfigError(f"{own}: cannot be read: {fault.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{own}: cannot be read: not UTF-8") from None
    if faults := faults_of(name, text):
        raise ConfigError(f"{own}: {'; '.join(faults)}")
    return text
