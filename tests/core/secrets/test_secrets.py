"""How many kinds of secrets are found, and how much of ordinary text is changed; the sets were
collected before the rules were run on them, and docs/security.md says what the first tries gave."""

import hashlib
import re
import sysconfig
import tomllib
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.hostile.secret_kinds import FOLDER, filled, kinds

import segue
from segue.core.secrets.redact import MARK, redact

PACKAGE = Path(segue.__file__).parent
RULES = PACKAGE / "secrets"
FORMS: dict[str, list[str]] = tomllib.loads((RULES / "vendors.toml").read_text())["forms"]
PLACES = tomllib.loads((RULES / "places.toml").read_text())["place"]
ENDINGS = {".py", ".md", ".rst", ".txt", ".json", ".toml", ".cfg", ".sh", ".html", ".js", ".pyi"}


SETS = [
    f"{name}.txt"
    for name in (
        "kinds",
        "second",
        "third",
        "fourth",
        "fifth",
        "sixth",
        "seventh",
        "eighth",
        "ninth",
    )
]


@pytest.mark.parametrize("file", SETS)
def test_97_of_100_kinds_of_secrets_are_found(file: str) -> None:
    tried, missed = 0, []
    for seed in range(1, 6):
        for kind in kinds(seed, file):
            tried += 1
            if kind.survivors(redact(kind.text)[0]):
                missed.append(f"{kind.vendor}: {kind.name}")
    print(f"{file}: {tried - len(missed)} of {tried}; missed: {sorted(set(missed))}")
    assert tried >= 5 * 150
    assert len(missed) <= 0.03 * tried, sorted(set(missed))


def test_names_stay_where_values_go() -> None:
    changed = [kind for kind in kinds() if MARK in redact(kind.text)[0]]
    for kind in changed:
        text = redact(kind.text)[0]
        assert len(text) < len(kind.text) + 3 * len(MARK)
    assert redact("DB_PASSWORD=hunter2 make")[0] == f"DB_PASSWORD={MARK} make"
    assert redact("curl -u dev:S3cret-9 https://x")[0] == f"curl -u dev:{MARK} https://x"
    assert redact("Server=db;User ID=a;Password=S3cret-9;Encrypt=True;")[0] == (
        f"Server=db;User ID=a;Password={MARK};Encrypt=True;"
    )


def test_a_value_that_is_known_to_be_secret_goes_wherever_it_is() -> None:
    text = "PGPASSWORD=Otter-4711x psql\npsql: cannot log in with Otter-4711x\nOtter is an animal"
    assert redact(text) == (
        f"PGPASSWORD={MARK} psql\npsql: cannot log in with {MARK}\nOtter is an animal", 2
    )  # fmt: skip


def test_a_secret_in_a_long_text_is_found_as_it_is_alone() -> None:
    """Only lines that can hold one are looked at: these must be all."""
    code = (PACKAGE / "core" / "lines.py").read_text() * 3
    assert len(code) > 2000
    for kind in [kind for file in SETS for kind in kinds(file=file)]:
        alone = redact(kind.text)
        assert redact(f"{code}\n\n\n\n{kind.text}\n\n\n\n{code}") == (
            f"{code}\n\n\n\n{alone[0]}\n\n\n\n{code}", alone[1]
        ), kind  # fmt: skip


@pytest.mark.parametrize("form", [form for forms in FORMS.values() for form in forms])
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_every_vendor_s_form_is_found(form: str, data: st.DataObject) -> None:
    key = data.draw(st.from_regex(re.compile(form, re.ASCII), fullmatch=True))
    assume(any(sign.isdigit() for sign in key) and not key.isspace())
    assert key not in redact(f"it says {key} there")[0]


def test_every_place_says_what_a_text_must_contain() -> None:
    for place in PLACES:
        assert place["needs"]
        assert all(word == word.lower() for word in place["needs"]), place["id"]


@pytest.mark.parametrize("seed", range(3))
def test_what_looks_like_a_secret_and_is_none_stays(seed: int) -> None:
    lines = filled((FOLDER / "ordinary.txt").read_text(encoding="utf-8"), seed).splitlines()
    assert [line for line in lines if redact(line)[1]] == []
    assert redact("\n".join(lines))[1] == 0


def ordinary_files() -> list[Path]:
    """Python's own library, the packages that segue needs, segue itself: there on every machine
    that runs the tests. The same ones each time, in an order that says nothing about them."""
    stdlib = Path(sysconfig.get_path("stdlib"))
    roots = [stdlib, Path(sysconfig.get_path("purelib")), PACKAGE]
    roots += [Path(__file__).parents[3] / "docs"]
    found = {
        path
        for root in roots
        for path in root.rglob("*")
        if not (root == stdlib and "site-packages" in path.parts)
        and path.suffix in ENDINGS
        and path.is_file()
        and 50 < path.stat().st_size < 60_000
    }
    return sorted(found, key=lambda path: hashlib.sha256(path.name.encode()).digest())[:2500]


def test_not_one_ordinary_file_in_a_hundred_is_changed() -> None:
    files, lines, changed_files, changed_lines = 0, 0, [], 0
    for path in ordinary_files():
        try:
            text = path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, OSError):
            continue
        files += 1
        lines += text.count("\n") + 1
        clean, found = redact(text)
        if found:
            changed_files.append(str(path))
            changed_lines += len(set(text.split("\n")) - set(clean.split("\n")))
    print(
        f"{len(changed_files)} of {files} files and {changed_lines} of {lines} lines changed:",
        *changed_files, sep="\n",
    )  # fmt: skip
    assert files >= 1000
    assert len(changed_files) <= 0.01 * files
    assert changed_lines <= 0.001 * lines
