"""pi's RPC mode, with its commands in order: `python -I -S bridge.py command…`.

pi takes commands as they arrive: a prompt that immediately follows an abort becomes part of the
turn that is being aborted, and is never answered. So this bridge holds back what follows an abort
until pi says that it is done. Everything else is passed on unchanged, both ways. The exit code is
pi's own, or 128 + the signal's number if a signal killed it.
"""

import json
import os
import signal
import subprocess
import sys
import threading

ABORT_S = 30.0  # an abort that takes longer is never answered
_ABORTED = b'"command":"abort"'
_MAX_PARTIAL = 1 << 12  # of an incomplete line; an answer is shorter
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Bridge:
    """Runs one pi."""

    def __init__(self, command: list[str]) -> None:
        self.aborted = threading.Event()
        # Signals that arrive before it exists wait until it does.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        self.pi = subprocess.Popen(  # noqa: S603 - the agent itself
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=_unblock
        )
        for number in _SIGNALS:
            signal.signal(number, self._pass_on)
        _unblock()

    def run(self) -> int:
        """Runs until pi ends, and returns the exit code."""
        threading.Thread(target=self._give, daemon=True).start()
        self._take()
        code = self.pi.wait()
        return 128 - code if code < 0 else code

    def _pass_on(self, number: int, frame: object) -> None:
        if self.pi.poll() is None:
            self.pi.send_signal(number)

    def _give(self) -> None:
        """Passes our input on, line by line; closes pi's when ours ends."""
        assert self.pi.stdin is not None
        try:
            for line in sys.stdin.buffer:
                is_abort = _is_abort(line)
                if is_abort:
                    self.aborted.clear()
                self.pi.stdin.write(line)
                self.pi.stdin.flush()
                if is_abort:
                    self.aborted.wait(ABORT_S)
            self.pi.stdin.close()
        except OSError:
            return  # it is gone

    def _take(self) -> None:
        """Passes its output on, byte by byte."""
        assert self.pi.stdout is not None
        rest = b""
        while data := os.read(self.pi.stdout.fileno(), 1 << 16):
            try:
                _write(data)
            except BrokenPipeError:
                self.pi.terminate()  # nobody is listening
                return
            lines = (rest + data).split(b"\n")
            rest = lines[-1][:_MAX_PARTIAL]
            if not self.aborted.is_set() and any(_ABORTED in line[:_MAX_PARTIAL] for line in lines):
                self.aborted.set()


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def _is_abort(line: bytes) -> bool:
    try:
        return bool(json.loads(line)["type"] == "abort")
    except (ValueError, TypeError, KeyError):
        return False


def _write(data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest) :]


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: bridge.py command…")
    try:
        status = Bridge(sys.argv[1:]).run()
    except OSError as error:
        sys.stderr.write(f"{sys.argv[1]}: {error.strerror}\n")
        status = 127
    os._exit(status)
