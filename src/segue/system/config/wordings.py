"""Loads the wordings: the bundled ones from the package, the user's from the config folder."""

import tomllib
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from segue.agents import canonical
from segue.core.stops.claims.likeness import Likeness, Table
from segue.core.stops.claims.vocabulary import Vocabulary
from segue.core.stops.text.wordings import Catalogue, Fault, Wording
from segue.system.files import files

PACKAGED = Path(__file__).parents[2] / "wordings"
CONCEPTS = PACKAGED / "concepts" / "terms.toml"
LIKENESS = PACKAGED / "concepts" / "likeness.json"
_MAX_BYTES = 4_000_000


def load(
    user_files: Iterable[Path] = (), *, extra: Iterable[Wording] = (), packaged: bool = True
) -> Catalogue:
    """The catalogue, the user's entries first. Errors in a file are in its `faults`; the rest still
    works."""
    entries: list[tuple[str, Wording]] = [("config.toml", wording) for wording in extra]
    ours: list[tuple[str, Wording]] = []
    faults: list[Fault] = []
    for file in user_files:
        found, wrong = read(file)
        entries += ((file.name, wording) for wording in found)
        faults += wrong
    for file in sorted(PACKAGED.glob("*.toml")) if packaged else ():
        ours += ((file.name, wording) for wording in read(file)[0])
    read_words = (vocabulary(), Likeness(likeness_table)) if packaged else (None, None)
    catalogue = Catalogue(entries, ours, *read_words)
    catalogue.faults[:0] = faults
    return catalogue


def vocabulary() -> Vocabulary:
    """The terms with which segue reads a message that matches no wording."""
    data = tomllib.loads(CONCEPTS.read_text(encoding="utf-8"))
    return Vocabulary(data["term"])


def likeness_table() -> Table:
    """The trained weights of words, with which segue reads a whole text."""
    return msgspec.json.decode(LIKENESS.read_bytes(), type=Table)


def read(file: Path) -> tuple[list[Wording], list[Fault]]:
    """The valid entries of one file, and the errors of the others."""
    try:
        data = tomllib.loads(files.read_plain(file, _MAX_BYTES).decode("utf-8"))
    except (OSError, UnicodeDecodeError) as fault:
        return [], [Fault(file.name, "file", f"cannot be read: {_short(fault)}")]
    except tomllib.TOMLDecodeError as fault:
        return [], [Fault(file.name, "file", f"not TOML: {fault}")]
    except (ValueError, RecursionError):
        return [], [Fault(file.name, "file", "not TOML: a number too long, or nested too deeply")]
    wordings: list[Wording] = []
    faults = [
        Fault(file.name, key, "unknown key, only [[wording]] is read")
        for key in data
        if key != "wording"
    ]
    tables = data.get("wording", [])
    if not isinstance(tables, list):
        return [], [*faults, Fault(file.name, "wording", "must be an array: write [[wording]]")]
    for number, table in enumerate(tables, start=1):
        name = (
            str(table.get("id") or f"entry {number}")
            if isinstance(table, dict)
            else f"entry {number}"
        )
        try:
            found = msgspec.convert(table, Wording)
            names = tuple(canonical(name) for name in found.agents)
            wordings.append(replace(found, agents=names))
        except msgspec.ValidationError as fault:
            from segue.system.config.type_faults import named

            faults.append(Fault(file.name, name, named(fault, Wording)))
    return wordings, faults


def _short(fault: Exception) -> str:
    return fault.strerror or str(fault) if isinstance(fault, OSError) else str(fault)
