"""Which sessions a word means: the same for commands, the daemon and MCP."""

import pytest

from segue.core.names import SessionName, matching

ONE = SessionName("abc123", "/home/.claude/one.jsonl", "/src/project")
TWO = SessionName("abd456", "/home/.claude/two.jsonl", "/src/project/")
THREE = SessionName("project", "/home/.claude/three.jsonl", "/other/place")
BARE = SessionName("zzz")


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("abc123", [ONE]),
        ("abc", [ONE]),
        ("ab", [ONE, TWO]),
        ("a", [ONE, TWO]),
        ("/home/.claude/two.jsonl", [TWO]),
        ("/src/project", [ONE, TWO]),
        ("/src/project/", [ONE, TWO]),
        ("project", [THREE]),  # an id goes before the name of a folder
        ("place", [THREE]),
        ("", []),
        ("/", []),
        ("none", []),
    ],
)
def test_what_fits_best_decides(word: str, found: list[SessionName]) -> None:
    assert matching(word, [ONE, TWO, THREE, BARE], lambda name: name) == found


def test_links_are_followed_where_there_is_a_file_system() -> None:
    links = {"/link": "/src/project", "/l.jsonl": "/home/.claude/one.jsonl"}
    everyone = [ONE, THREE]
    assert matching("/link", everyone, lambda name: name, lambda p: links.get(p, p)) == [ONE]
    assert matching("/l.jsonl", everyone, lambda name: name, lambda p: links.get(p, p)) == [ONE]
