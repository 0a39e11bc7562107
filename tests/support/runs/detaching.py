"""What test_detach and other tests share."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from segue.runs.store import leases
from support.running import Staged


def pid_of(s: Staged, run_id: str) -> int:
    with s.store() as store:
        holder = store.holder(f"run:{run_id}")
    assert holder is not None
    assert leases.is_alive(holder)
    return holder.pid


@pytest.fixture(autouse=True)
def ended_afterwards(tmp_path: Path) -> Iterator[None]:
    """Nothing else ends what was told to stay."""
    yield
    for process in psutil.process_iter():
        try:
            if process.environ().get("SEGUE_HOME", "").startswith(f"{tmp_path}/"):
                process.kill()
        except psutil.Error:
            continue
