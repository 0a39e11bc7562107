"""The claude form's dialogue with the user: prompts and control requests, until the input ends."""

from segue.drill.rehearsal.claude_endings import KILLED
from segue.drill.rehearsal.claude_form import ClaudeSession, text_of
from segue.drill.rehearsal.inbox import JSON, Inbox, Interrupted
from segue.drill.rehearsal.settings import Settings


def converse(settings: Settings, inbox: Inbox, session: ClaudeSession, prompt: str) -> int:
    """Runs from the first prompt to the end of the process; returns its exit code."""
    code = session.turn(prompt) if prompt else 0
    while settings.input == "stream-json":
        try:
            line = inbox.next_line()
        except Interrupted as by:  # between two turns
            if not by.request:
                raise
            session.agree(by.request)
            continue
        while inbox.questions:
            _answer(session, inbox.questions.popleft())
        if line is not None:
            code = session.turn(text_of(line), line)
        elif not inbox.is_open and not inbox.lines:
            break
    return code


def run(settings: Settings, inbox: Inbox, session: ClaudeSession, prompt: str) -> int:
    """Like `converse`, and ends as the real agent does when a signal interrupts it."""
    try:
        return converse(settings, inbox, session, prompt)
    except Interrupted as by:
        return session.die(by.number) if by.number in KILLED else 0


def _answer(session: ClaudeSession, question: JSON) -> None:
    """Answers a control request that is not an interruption."""
    request = question.get("request")
    answer: JSON = {}
    if isinstance(request, dict) and request.get("subtype") == "get_context_usage":
        window = session.settings.claude_window
        percentage = round(100 * session.used / window)
        answer = {"totalTokens": session.used, "maxTokens": window, "percentage": percentage}
    response_record = {
        "subtype": "success",
        "request_id": question.get("request_id"),
        "response": answer,
    }
    session.voice.emit({"type": "control_response", "response": response_record})
