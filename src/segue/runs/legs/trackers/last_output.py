"""Tracks what a leg's last tool call printed, for a session that may have nothing of it. Nothing
that judges a stop may read this: an agent may read a repository full of "rate limit exceeded"."""

from segue.core.stops.events import Event, ToolCall, ToolResult


class LastOutput:
    """The output of the last tool call; `text` is "" while there is none."""

    def __init__(self) -> None:
        self.text = ""
        self._call_id = ""

    def feed(self, event: Event) -> None:
        """Takes an event of the stream."""
        if isinstance(event, ToolCall):
            self.text, self._call_id = "", event.call_id
        elif isinstance(event, ToolResult) and event.call_id == self._call_id:
            self.text = event.printed
