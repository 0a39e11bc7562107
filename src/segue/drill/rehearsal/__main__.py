"""The command line: `rehearsal -p PROMPT …`, or in Codex's form `rehearsal exec …`."""

import argparse
import io
import os
import signal
import sys

from segue import __version__
from segue.drill.rehearsal import claude_file, hooks
from segue.drill.rehearsal.inbox import JSON, Inbox
from segue.drill.rehearsal.settings import CLAUDE_MODEL, CODEX_MODEL, Settings


def claude_parser() -> argparse.ArgumentParser:
    """The options of Claude Code that have a meaning here."""
    parser = argparse.ArgumentParser(prog="rehearsal", description=__doc__, allow_abbrev=False)
    parser.add_argument("-p", "--print", nargs="?", const="", dest="prompt", metavar="PROMPT")
    parser.add_argument("--output-format", choices=("text", "json", "stream-json"), default="text")
    parser.add_argument("--input-format", choices=("text", "stream-json"), default="text")
    parser.add_argument("--session-id", default="", metavar="ID")
    parser.add_argument("-r", "--resume", default="", metavar="ID")
    parser.add_argument("-c", "--continue", action="store_true", dest="goes_on")
    parser.add_argument("--max-turns", type=int, metavar="N")
    parser.add_argument("--model", default=CLAUDE_MODEL)
    parser.add_argument("--settings", default="", metavar="FILE")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--replay-user-messages", action="store_true", dest="tells_back")
    parser.add_argument("--version", action="version", version=f"{__version__} (rehearsal)")
    return parser


def codex_parser() -> argparse.ArgumentParser:
    """The options of Codex's `exec` that are accepted here."""
    parser = argparse.ArgumentParser(prog="rehearsal exec", allow_abbrev=False)
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--model", default=CODEX_MODEL)
    parser.add_argument("--last", action="store_true")
    parser.add_argument("--skip-git-repo-check", action="store_true")  # it works in any folder
    parser.add_argument("-c", "--config", action="append", metavar="KEY=VALUE")  # it has no config
    parser.add_argument("words", nargs="*", metavar="[resume ID] PROMPT")
    return parser


def claude(given: argparse.Namespace, settings: Settings) -> int:
    """Starts or continues a session in the claude form."""
    from segue.drill.rehearsal.claude_form import ClaudeSession
    from segue.drill.rehearsal.claude_talk import run
    from segue.drill.rehearsal.claude_voice import Voice, complain
    from segue.drill.rehearsal.messages_api import Api

    settings.model, settings.max_turns = given.model, given.max_turns
    settings.output, settings.input = given.output_format, given.input_format
    settings.tells_back = given.tells_back
    if given.settings and settings.has_hooks:
        settings.hooks = hooks.commands(given.settings)
    ident = given.session_id or claude_file.new_id()
    path = None
    if given.goes_on:
        path = claude_file.newest(settings.home, settings.cwd)
    elif given.resume:
        path = claude_file.find(settings.home, given.resume)
    elif given.session_id and claude_file.find(settings.home, ident):
        complain(f"Error: Session ID {ident} is already in use.")
        return 1
    wanted = given.resume or given.goes_on
    history = claude_file.History(path) if path else None
    if path is not None:
        ident = path.stem
    inbox = Inbox()
    api = Api(settings, inbox)
    if wanted and (history is None or history.is_empty):
        return _nothing(settings, given.resume or "(the newest)", ident)
    prompt = ""
    if settings.input == "stream-json":
        inbox.read_input()
    elif not (prompt := given.prompt or sys.stdin.read().strip()):
        complain("Error: Input must be provided through stdin or as an argument with --print")
        return 1
    voice = Voice(settings, claude_file.SessionFile(settings.home, ident, settings.cwd, path))
    session = ClaudeSession(settings, inbox, api, voice)
    inbox.listen(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    if history is not None:
        session.go_on(history)
    return run(settings, inbox, session, prompt)


def _nothing(settings: Settings, wanted: str, ident: str) -> int:
    """Reports that there is no such session; returns the exit code."""
    from segue.drill.rehearsal.claude_voice import TurnUsage, Voice, complain

    message = f"No conversation found with session ID: {wanted}"
    complain(message)

    class Nowhere(claude_file.SessionFile):
        def __init__(self) -> None:
            self.session, self.cwd, self.parent = ident, settings.cwd, None

        def write(self, record: JSON) -> None:
            """Writes nothing: there is no session whose file it could be."""

    Voice(settings, Nowhere()).result(
        TurnUsage(0, {}),
        "",
        0.0,
        0.0,
        subtype="error_during_execution",
        is_error=True,
        num_turns=0,
        errors=[message],
        duration_ms=0,
    )
    return 1


def codex(given: argparse.Namespace, settings: Settings) -> int:
    """Starts or continues a thread in the codex form."""
    from segue.drill.rehearsal.codex_form import run

    words = list(given.words)
    thread = ""
    if words[:1] == ["resume"]:
        words.pop(0)
        thread = "last" if given.last else words.pop(0) if words else ""
    settings.model = given.model
    settings.output = "json" if given.as_json else "text"
    return run(settings, thread, "" if words == ["-"] else " ".join(words))


def main() -> int:
    """Runs the command; returns the exit code."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")  # in any locale
    try:
        settings = Settings(os.environ)
        if sys.argv[1:2] == ["exec"]:
            return codex(codex_parser().parse_intermixed_args(sys.argv[2:]), settings)
        return claude(claude_parser().parse_args(), settings)
    except ValueError as fault:
        print(f"rehearsal: {fault}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1  # nobody reads the output any more


if __name__ == "__main__":
    code = main()
    try:
        sys.stdout.flush()
    except OSError:
        code = code or 1
    os._exit(code)  # exits without waiting for threads that are still blocked
