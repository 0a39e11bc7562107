"""Sends commands to the daemon, and explains what to do if there is none."""

from typing import Any

from segue.errors import InputError
from segue.system.config import config
from segue.system.files import state
from segue.views import printing
from segue.watch.server.remote import NoDaemon, Remote


def remote() -> Remote:
    """The daemon's API."""
    return Remote(state.socket_path())


def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Sends a request to the daemon. Raises InputError with one line if no daemon is running or if
    it refuses, StateError if it fails or does not respond."""
    try:
        answer: dict[str, Any] = remote().post(path, body)
        return answer
    except NoDaemon:
        raise InputError("no daemon is running; start it: segue watch") from None
    except UnicodeError:
        raise InputError("the name is not valid UTF-8") from None


def ask(path: str, body: dict[str, Any], *, as_json: bool) -> None:
    """Sends a request and prints the answer. Raises as `post` does."""
    answer = post(path, body)
    if as_json:
        printing.say_json(answer)
    else:
        printing.say(config.clean(str(answer.get("said", ""))))
