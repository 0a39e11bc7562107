"""The packaged wordings: every entry is sound, true to its examples, and found."""

import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest
from conftest import lines

from segue import api, core
from segue.agents.ending import Ending, Source
from segue.cli.tools.wordings import untrue
from segue.core.stops.claims.vocabulary import Vocabulary
from segue.core.stops.reasons import StopReason
from segue.core.stops.text.literals import Need, may_match, required
from segue.core.stops.text.wordings import Catalogue, Reason, Where, Wording, bad_pattern
from segue.system.config import wordings

FILES = sorted(wordings.PACKAGED.glob("*.toml"))
ENTRIES = [(file, wording) for file in FILES for wording in wordings.read(file)[0]]
PLACES: tuple[Where, ...] = get_args(Where)
by_id = pytest.mark.parametrize(("file", "wording"), ENTRIES, ids=[w.id for _, w in ENTRIES])


def test_every_file_is_read_without_a_fault() -> None:
    assert [fault for file in FILES for fault in wordings.read(file)[1]] == []


def test_no_id_is_used_twice() -> None:
    ids = [wording.id for _, wording in ENTRIES]
    assert len(ids) == len(set(ids))


def test_reasons_are_those_of_a_stop_and_none() -> None:
    assert set(get_args(Reason)) == {r.value for r in StopReason} - {"unknown"} | {"none"}


@by_id
def test_an_entry_is_sound_and_has_an_example(file: Path, wording: Wording) -> None:
    assert bad_pattern(wording) == ""
    assert wording.example


@by_id
def test_an_entry_matches_its_examples_and_not_its_exceptions(file: Path, wording: Wording) -> None:
    assert untrue(api.load_catalogue(), file.name, wording) == []


@by_id
def test_an_example_alone_gets_its_reason(file: Path, wording: Wording) -> None:
    """What an entry is for: said by an agent, its example leads to its reason."""
    mark = "> " if wording.where == ("prompt",) else ""
    for example in wording.example:
        source = Source(text=f"{mark}{example}", channel="tui", name="tui")
        agent = wording.agents[0] if wording.agents else None
        stop = api.examine(Ending(sources=(source,), agent=agent), now=0.0).stop
        wanted = "unknown" if wording.reason == "none" else wording.reason
        assert stop.reason.value == wanted, (example, stop.evidence)


@pytest.mark.parametrize("texts_by_words", [0, 10_000], ids=["by RE2's filter", "by words"])
def test_the_filters_find_what_one_by_one_finds(
    texts_by_words: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shortcuts (look for necessary words first) must not lose a single hit."""
    import re2

    monkeypatch.setattr("segue.core.stops.text.wordings._FEW_TEXTS", texts_by_words)
    monkeypatch.setattr("segue.core.stops.text.wordings._FEW_CHARS", texts_by_words * 10_000)
    catalogue = wordings.load()
    compiled = {
        place: [(w.id, re2.compile(source)) for w, source in catalogue.sources(place)]
        for place in PLACES
    }
    for record in lines("stops.jsonl")[::3]:
        text = record["text"]
        for place in PLACES:
            found = {hit.wording.id for hit in catalogue.find(text, place, None)}
            wanted = {name for name, pattern in compiled[place] if pattern.search(text)}
            own = {w.id for w in catalogue.wordings if w.agents}
            assert found == wanted - own, (record["id"], place)


def test_no_term_is_lost_by_looking_for_its_words_first() -> None:
    import re2

    terms = tomllib.loads(wordings.CONCEPTS.read_text(encoding="utf-8"))["term"]
    compiled = {name: re2.compile(f"(?i){term}") for name, term in terms.items()}
    used = set()
    for record in lines("stops.jsonl")[::3]:
        text = record["text"]
        found = Vocabulary(terms).terms_in(text)  # a new one has compiled none
        assert found == [name for name in terms if compiled[name].search(text)], record["id"]
        used.update(found)
    assert len(used) > len(terms) / 2


@pytest.mark.parametrize(
    ("pattern", "needs"),
    [
        ("log in again", "log+in+again"),
        ("(?:usage )?limit reached", "limit+reached"),
        ("colou?r", "colo"),
        ("ab{2,3}cdef", "cdef"),
        ("no (?:more )?credits|(?:payment|billing) due", "no+credits payment/billing+due"),
        ("(?:abc|def)+", "abc/def"),
        ("(?:the abc|a def|gh(?:i|j))", "the/def/gh"),
        ("(?:abc (?:def ){1,2}ghi)", "abc+ghi"),
        ("(?P<when>monday|friday)", "monday/friday"),
        ("(?:abc|def)?", ""),
        ("(?:abc|d?)", ""),
        ("(?:abc ){0,700}", ""),
        (r"[)abc|]\(\)xyz", "xyz"),
        (r"\Qa|b\E", ""),
        (r"\x{41}bcd", ""),
        ("(?-i:Error)", ""),
        ("límite", "mite"),
        ("利用制限?|한도", "利用制 한도"),
        ("", ""),
    ],
)
def test_words_that_a_pattern_needs_are_read_from_it(pattern: str, needs: str) -> None:
    found = [["/".join(words) for words in need] for need in required(pattern)]
    assert " ".join("+".join(need) for need in found) == needs


def test_letters_that_fold_into_others_do_not_hide_a_wording() -> None:
    entry = Wording(id="a", reason="auth", pattern="task kills", example=("task kills",))
    assert Catalogue([("file", entry)]).find("TA\u017f\u212a \u212aill\u017f", "error")


def test_every_pattern_that_is_compiled_later_can_be_compiled() -> None:
    found = 0
    for path in sorted(Path(core.__file__).parent.rglob("*.py")):
        if "lazy_pattern(" not in path.read_text(encoding="utf-8") or path.stem == "lazy_pattern":
            continue
        name = ".".join(("segue.core", *path.relative_to(Path(core.__file__).parent).parts))
        for value in vars(import_module(name.removesuffix(".py"))).values():
            if repr(value).startswith("lazy_pattern("):
                assert value.pattern
                found += 1
    assert found > 100


def test_a_blank_in_a_pattern_is_any_white_space() -> None:
    wording = Wording(id="a", reason="auth", pattern="log in again", example=("log in again",))
    catalogue = Catalogue([("file", wording)])
    assert catalogue.find("Error: log\n   in\tagain", "error")
    assert not catalogue.find("Error: login again", "error")


def test_a_wording_of_one_agent_counts_only_for_it() -> None:
    entry = Wording(id="a", reason="auth", pattern="abc", agents=("pi",), example=("abc",))
    catalogue = Catalogue([("file", entry)])
    assert catalogue.find("abc", "error", "pi")
    assert not catalogue.find("abc", "error", "codex")
    assert not catalogue.find("abc", "error")


def test_patterns_hold_no_machine_path() -> None:
    assert not [w.id for _, w in ENTRIES if re.search(r"/(?:root|home)/\w", w.pattern)]


def test_a_long_text_is_not_searched_for_one_word_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: list[int] = []

    def counted(needs: tuple[Need, ...], folded: str) -> bool:
        searched.append(len(folded))
        return may_match(needs, folded)

    monkeypatch.setattr("segue.core.stops.text.wordings.may_match", counted)
    catalogue = wordings.load()
    catalogue.find("[" * 50_000, "error")
    assert searched == []
    catalogue.find("too many requests", "line")
    assert set(searched) == {17}
