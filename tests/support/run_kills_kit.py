"""What test_run_kills and other tests share."""

import psutil

from support.running import Staged


def left_running(s: Staged) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HOME") == s.env["HOME"]:
                found.append(process)
        except psutil.Error:
            continue
    return found
