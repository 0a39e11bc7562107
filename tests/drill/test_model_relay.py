"""The scripted model and handoff documents: it writes one when asked, and reads one when told."""

from segue.core.handoffs.document import check, name
from segue.core.handoffs.prompts import (
    HANDOFF_REQUEST,
    HANDOFF_RESUME,
    handoff_request,
    handoff_resume,
)
from segue.drill.model import speech
from segue.drill.model.ask import Call, Part
from segue.drill.model.relay import Relay, read_command, relay, write_command
from segue.system.config import prompts

FILE = f"/home/me/my project/.segue/handoffs/{name(1.8e9, 'h-1a2b')}"
ASKED = Part("user", handoff_request(prompts.load(HANDOFF_REQUEST), percent=86, file=FILE))
TOLD = Part("user", handoff_resume(prompts.load(HANDOFF_RESUME), file=FILE))


def ran(command: str) -> Part:
    return Part("assistant", calls=(Call("1", command),))


def test_a_session_that_is_asked_writes_the_document_once_and_does_nothing_more() -> None:
    assert relay([Part("user", "work"), ASKED]) == Relay("write", FILE)
    wrote = ran(write_command(FILE, "text"))
    assert relay([ASKED, wrote, Part("tool", "")]) == Relay("written", FILE)


def test_the_request_is_found_in_what_a_hook_adds_to_a_tools_result() -> None:
    assert (
        relay([Part("user", "work"), ran("ls"), Part("tool", f"a b\n{ASKED.text}")]).act == "write"
    )


def test_a_session_that_is_told_to_reads_it_looks_and_works() -> None:
    assert relay([TOLD]) == Relay("read", FILE)
    read = [TOLD, ran(read_command(FILE)), Part("tool", "…")]
    assert relay(read).act == "look"
    assert relay([*read, ran("sh job/show"), Part("tool", "…")]).act == "work"


def test_who_speaks_after_the_document_was_written_gets_work() -> None:
    wrote = ran(write_command(FILE, "text"))
    assert relay([ASKED, wrote, Part("tool", ""), Part("user", "go on")]).act == "work"


def test_its_document_is_one_that_a_context_may_be_cleared_with() -> None:
    assert check(speech.document((), 20)) == ""
    assert check(speech.document(range(1, 21), 20)) == ""
