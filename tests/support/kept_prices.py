"""The prices that a run keeps for the next one, so that the first run of a test does not have to
load the whole list."""

import os
import tempfile
from functools import cache
from pathlib import Path
from unittest import mock

from segue.drill.rehearsal.settings import CLAUDE_MODEL, CODEX_MODEL
from segue.system.config import prices


def put_kept_prices(home: Path) -> None:
    """Into a SEGUE_HOME: of the models that the rehearsal agents use."""
    place = home / prices.KEPT_NAME
    place.touch(mode=0o600)
    place.write_bytes(_kept())


@cache
def _kept() -> bytes:
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, {"SEGUE_HOME": folder}),
    ):
        prices.keep([CLAUDE_MODEL, CODEX_MODEL])
        return (Path(folder) / prices.KEPT_NAME).read_bytes()
