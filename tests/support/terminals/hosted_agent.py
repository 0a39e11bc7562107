"""A full-screen program by an agent's name: it asks the terminal for things and writes down what it
gets, one JSON value a line: its environment, its size at each change, the bytes that it reads."""

import json
import os
import select
import signal
import sys
import termios
import tty
from pathlib import Path

BEGINS = "\x1b[?2004h\x1b[38;2;1;22;203mcolour\x1b[m\x1b]0;my title\x07\x1b]52;c;c2VndWU=\x07"
MOUSE = "\x1b[?1002h\x1b[?1006h"
FULL = "\x1b[?1049h"


def main(log: str, *words: str) -> None:
    def tell(value: object) -> None:
        with open(log, "a") as file:
            file.write(json.dumps(value) + "\n")

    def size(*_: object) -> None:
        tell({"size": [*os.get_terminal_size(0)]})

    if "--version" in words:
        print("stand-in 1.0")
        sys.exit(3)
    signal.signal(signal.SIGWINCH, size)
    signal.signal(signal.SIGINT, lambda *_: tell({"signal": "SIGINT"}))
    before = termios.tcgetattr(0)
    tty.setraw(0)
    begins = BEGINS + (MOUSE if "mouse" in words else "") + (FULL if "full" in words else "")
    os.write(1, begins.encode())
    for number in range(100 if "lines" in words else 0):
        os.write(1, f"line {number}\r\n".encode())
    os.write(1, b"ready> ")
    size()
    tell({"env": dict(os.environ), "argv": sys.argv[2:], "cwd": os.getcwd(), "pid": os.getpid()})
    while True:
        if not select.select([0], [], [], 0.5)[0]:
            continue
        data = os.read(0, 65536)
        tell({"read": data.decode("latin-1")})
        if not data or data == b"q":
            break
    termios.tcsetattr(0, termios.TCSANOW, before)
    os.write(1, b"\r\x1b[?1049l\x1b[?2004lgoodbye\r\n")
    sys.exit(7)


def install(folder: Path, log: Path, name: str = "claude") -> Path:
    """Puts it into a folder of its own for the PATH."""
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {__file__} {log} "$@"\n')
    program.chmod(0o755)
    return folder


if __name__ == "__main__":
    main(*sys.argv[1:])
