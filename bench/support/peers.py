"""What benches have in common: children's CPU time and memory, and ccusage to compare with."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CCUSAGE = "ccusage@20.0.24"


@dataclass(frozen=True)
class Cost:
    """What a child process took."""

    cpu_s: float
    peak_mb: float
    out: bytes


def run(command: Sequence[str], env: dict[str, str]) -> Cost:
    """Runs a child to its end; its own children are counted too."""
    child = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if child.stdout is None or child.stderr is None:
        raise RuntimeError("no pipes")
    out, err = child.stdout.read(), child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{' '.join(command)}: {err.decode(errors='replace')}")
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, out)


def segue() -> str:
    """The segue beside this interpreter."""
    # Not resolved: in a virtual environment the interpreter is a link to one elsewhere.
    script = Path(sys.executable).parent / "segue"
    if not script.is_file():
        sys.exit(f"no {script}: install segue beside this interpreter first")
    return str(script)


def ccusage(folder: Path) -> str:
    """The native binary, from npm if it is not in the folder yet."""
    copy = folder / "ccusage"
    if not copy.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        install = ["npm", "install", "--silent", "--prefix", str(folder), CCUSAGE]
        subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
        (binary,) = folder.glob("node_modules/@ccusage/*/bin/ccusage")
        shutil.copy(binary, copy)
        copy.chmod(0o755)  # npm leaves it without the permission to run
    return str(copy)


def clean_env(home: Path, **given: str) -> dict[str, str]:
    """Nothing of the user's: every agent's home is below `home`."""
    return {"HOME": str(home), "TZ": "UTC", "PATH": os.environ.get("PATH", ""), **given}
