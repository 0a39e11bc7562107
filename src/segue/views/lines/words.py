"""What agents say, as dated lines between those of a run's log."""

from collections import deque
from datetime import tzinfo

from segue.fleet import output
from segue.fleet.database import FleetDatabase
from segue.fleet.output import Piece
from segue.views import printing
from segue.views.lines.runs import dated
from segue.views.report.transcripts import TranscriptLines


class DatedWords:
    """What the agents of a fleet's run said, as its machine published it."""

    def __init__(self, db: FleetDatabase, run_id: str, tz: tzinfo, leg: int | None) -> None:
        self._db, self._run, self._tz, self._leg = db, run_id, tz, leg
        self._lines, self._number = TranscriptLines(), 0
        self._waiting: deque[Piece] = deque()

    def look(self) -> None:
        """Reads new utterances. Raises StateError."""
        pieces = output.words(self._db, self._run, self._number)
        self._number = pieces[-1].number if pieces else self._number
        self._waiting += [each for each in pieces if self._leg in (None, each.leg)]

    def until(self, at: float | None) -> list[str]:
        """The lines for what was said before that time, for `printing.say`; with None, all that are
        left. Each is returned once."""
        found = []
        while self._waiting and (at is None or self._waiting[0].at < at):
            piece = self._waiting.popleft()
            # Prompts are in the log already.
            utterances = [each for each in piece.utterances if each.who not in ("you", "segue")]
            for line in self._lines.of(utterances):
                stamp = printing.style(dated(piece.at, self._tz), dim=True)
                found.append(f"{stamp}  {line}")
        return found
