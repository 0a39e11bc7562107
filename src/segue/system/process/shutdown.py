"""Whether the machine is shutting down: a SIGTERM then says nothing about the user's intention."""

import subprocess

_ASK_S = 2.0


def is_under_way() -> bool:
    """Whether a shutdown is in progress, if the system reports it; otherwise False."""
    try:
        answer = subprocess.run(
            ["systemctl", "is-system-running"],  # noqa: S607 - as the PATH says
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ASK_S,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return False
    return answer.stdout.strip() == "stopping"
