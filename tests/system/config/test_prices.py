"""Prices that are kept, so that the list is not loaded by every run."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.running import stage

from segue.core.sessions.spend import Spend
from segue.system.config import prices

MODEL = "claude-sonnet-4-5"
SPEND = Spend(input_tokens=1_000_000, output_tokens=1_000_000)
ASK = f"""
import sys
from segue.core.sessions.spend import Spend
from segue.system.config import prices
print(prices.cost_usd({MODEL!r}, Spend(input_tokens=1_000_000, output_tokens=1_000_000)))
print("genai_prices" in sys.modules)
"""


def asked(home: Path) -> list[str]:
    """What a new process says that it costs, and whether it had to load the list."""
    env = {**os.environ, "SEGUE_HOME": str(home)}
    done = subprocess.run([sys.executable, "-c", ASK], env=env, capture_output=True, check=True)
    return done.stdout.decode().split()


def test_a_run_keeps_the_prices_of_its_models_and_the_next_process_does_not_load_the_list(
    tmp_path: Path,
) -> None:
    with stage("success", within=tmp_path) as s:
        kept = s.home / prices.KEPT_NAME
        kept.unlink()
        assert s.run().code == 0
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        cost, has_loaded = asked(s.home)
        assert (float(cost), has_loaded) == (18.0, "False")
        kept.unlink()
        cost, has_loaded = asked(s.home)
        assert (float(cost), has_loaded) == (18.0, "True")


def told(**changes: object) -> bytes:
    """A file that is right but for `changes`."""
    five = ["1", "1", "1", "1", "1"]
    said = {"list": prices._list_stamp(), "rates": {MODEL: five}}
    return json.dumps({**said, **changes}).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"\xff", b"[" * 100_000, told(list="1-1"), told(rates=3),
        told(rates={MODEL: ["1"]}), told(rates={MODEL: ["x"] * 5}), told(rates={MODEL: 7}),
    ],
)  # fmt: skip
def test_a_file_that_is_broken_or_of_another_list_changes_no_price(
    content: bytes, own_home: Path
) -> None:
    home = own_home / "segue"
    home.mkdir()
    (home / prices.KEPT_NAME).write_bytes(told())
    assert prices.cost_usd(MODEL, SPEND) == 2_000_000  # what is kept counts
    (home / prices.KEPT_NAME).write_bytes(content)
    assert prices.cost_usd(MODEL, SPEND) == 18
    prices.keep([MODEL])
    assert prices.cost_usd(MODEL, SPEND) == 18
    assert json.loads((home / prices.KEPT_NAME).read_bytes())["rates"][MODEL] is not None


def test_a_model_without_a_price_is_kept_as_that(own_home: Path) -> None:
    (own_home / "segue").mkdir()
    prices.keep(["nobody's"])
    assert json.loads((own_home / "segue" / prices.KEPT_NAME).read_bytes())["rates"] == {
        "nobody's": None
    }
    assert prices.cost_usd("nobody's", SPEND) is None
