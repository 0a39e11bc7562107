"""A conversation for people: who said what, with the tool calls in between."""

from segue.runs.legs.words import Conversation, Utterance
from segue.sessions.digest import read_session


def of_session(agent: str, path: str, session_id: str) -> list[Utterance]:
    """The conversation of a session, from its file or database; empty if it cannot be read."""
    found = Conversation()
    read_session(found, agent, path, session_id)
    return found.utterances
