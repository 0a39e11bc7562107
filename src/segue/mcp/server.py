"""`segue mcp`: lets an agent query its own session, and act before its window is full.

The SDK takes most of a second to import, so only this command imports it. `mcp/answers`
implements the tools; this module gives them names, schemas and errors. stdout belongs to the
protocol.
"""

import signal
from collections.abc import Callable
from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError, ToolError
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from mcp.types import Resource as Listed
from pydantic import BaseModel, ConfigDict, Field

from segue import __version__
from segue.core.terminals.visible import to_json
from segue.errors import SegueError
from segue.mcp.answers import Answers, McpAnswer

MARKDOWN = "text/markdown"
HANDOFFS = "segue://handoffs"
INSTRUCTIONS = """\
segue tracks how full the context window of this session is. Call `fits` before a task that may need
many tokens, and `context_status` to see how much room is left. When little is left, finish the
current step and save the state of the work with `write_handoff`, so that a new session can continue
from it."""

_HANDOFF_TEXT = (
    "The whole document as Markdown, with the headings Goal, Completed Work, Remaining Tasks,"
    " Do Not Redo and Key Decisions."
)
_WHICH = (
    "A session's id or the beginning of it. Without it: the session whose agent started this"
    " server, else the newest live one of its folder; the answer says which was taken."
)
Which = Annotated[str, Field(description=_WHICH, max_length=200)]
_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
_HANDS_OVER = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)


class _Shape(BaseModel):
    """What an answer holds at least."""

    model_config = ConfigDict(extra="allow")


class StatusAnswer(_Shape):
    """A session, in the form of `segue status --json`."""

    session: dict[str, Any]
    chosen: str


class FitAnswer(_Shape):
    """Whether a task may be begun, in the form of `segue fits --json`."""

    fits: bool
    tokens: int
    room_tokens: int
    because: str
    why: str
    chosen: str


class DocumentKept(_Shape):
    """A handoff document that was kept."""

    file: str
    name: str
    uri: str
    daemon_told: bool
    session_id: str | None
    chosen: str | None


class Requested(_Shape):
    """What the daemon said."""

    said: str
    session_id: str
    chosen: str


class Sessions(_Shape):
    """Live ones first."""

    sessions: list[dict[str, Any]]


class McpServer(MCPServer[Any]):
    """A server that lists the handoff documents that exist at the time of the request."""

    def __init__(self, answers: Answers) -> None:
        super().__init__(
            "segue", version=__version__, instructions=INSTRUCTIONS, log_level="CRITICAL"
        )
        self._answers = answers

    async def list_resources(self) -> list[Listed]:
        """The list as a resource, then every document, the newest first."""
        import anyio

        found = await super().list_resources()
        try:
            documents = await anyio.to_thread.run_sync(self._answers.documents)
        except SegueError:
            return found
        return found + [
            Listed(
                uri=f"{HANDOFFS}/{document.name}",
                name=document.name,
                description="A handoff document of this project",
                mime_type=MARKDOWN,
                size=document.size_bytes,
            )
            for document in documents
        ]


def make_server(answers: Answers) -> McpServer:
    """A server with all tools and resources, ready to run."""
    server = McpServer(answers)

    @server.tool(title="How full is this session?", annotations=_READS)
    def context_status(session: Which = "") -> Annotated[CallToolResult, StatusAnswer]:
        """How full a session's context window is, its zone (normal, monitor, warning, critical,
        handoff), how fast it grows, and how far the handoff is."""
        return _result(lambda: answers.context_status(session))

    @server.tool(title="Does a task still fit?", annotations=_READS)
    def fits(
        tokens: Annotated[int | None, Field(description="How many tokens it needs.")] = None,
        prompt: Annotated[
            str | None,
            Field(
                description="Its prompt instead: the size is estimated from this project's past."
            ),
        ] = None,
        session: Which = "",
    ) -> Annotated[CallToolResult, FitAnswer]:
        """Whether a task may still be begun in this session, or is better left to the one after
        the handoff. Give either `tokens` or `prompt`."""
        return _result(lambda: answers.fits(tokens, prompt, session))

    @server.tool(title="Save a handoff document", annotations=_WRITES)
    def write_handoff(
        text: Annotated[str, Field(description=_HANDOFF_TEXT)], session: Which = ""
    ) -> Annotated[CallToolResult, DocumentKept]:
        """Keeps what the next session must know, in the project's handoff folder under a name that
        segue gives. It is checked first: what is refused is not kept, and the answer says why."""
        return _result(lambda: answers.write_handoff(text, session))

    @server.tool(title="Hand this session over", annotations=_HANDS_OVER)
    def request_handoff(
        reason: Annotated[str, Field(description="Why, in one sentence.")], session: Which = ""
    ) -> Annotated[CallToolResult, Requested]:
        """Asks segue to hand this session over: it will ask for the document, clear the context
        and have the work continue. Needs `segue watch`."""
        return _result(lambda: answers.request_handoff(reason, session))

    @server.tool(title="All sessions", annotations=_READS)
    def sessions() -> Annotated[CallToolResult, Sessions]:
        """The sessions of all agents on this machine that are live or of the last day."""
        return _result(answers.sessions)

    @server.resource(HANDOFFS, name="handoffs", mime_type="application/json")
    def listed() -> str:
        """The handoff documents of this project, the newest first."""
        found = _read(answers.documents)
        return to_json(
            [
                {
                    "name": one.name,
                    "uri": f"{HANDOFFS}/{one.name}",
                    "size_bytes": one.size_bytes,
                    "changed_at": one.changed_at,
                }
                for one in found
            ]
        )

    @server.resource(HANDOFFS + "/{name}", name="handoff", mime_type=MARKDOWN)
    def document(name: str) -> str:
        """One handoff document."""
        return str(_read(lambda: answers.document(name)))

    return server


def _result(work: Callable[[], McpAnswer]) -> CallToolResult:
    """A tool's answer, as text and as data. A SegueError becomes an error of the tool."""
    try:
        answer = work()
    except SegueError as fault:
        raise ToolError(str(fault)) from None
    return CallToolResult(
        content=[TextContent(type="text", text=_utf8(answer.text))],
        structured_content=_utf8(answer.data),
    )


def _utf8(value: Any) -> Any:
    """The value with all text valid UTF-8, as JSON needs it: file names need not be."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {key: _utf8(item) for key, item in value.items()}
    return [_utf8(item) for item in value] if isinstance(value, list) else value


def _read(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except SegueError as fault:
        kind = ResourceNotFoundError if fault.exit_code == 2 else ResourceError
        raise kind(str(fault)) from None


def serve() -> None:
    """Answers requests until stdin ends."""
    # The thread that reads stdin cannot be interrupted, so Ctrl+C must end the process itself.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    make_server(Answers()).run("stdio")


if __name__ == "__main__":
    serve()
