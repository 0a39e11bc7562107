"""`segue dashboard` as a process, a client that asks it, and a real browser: for tests."""

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from playwright.sync_api import BrowserContext, sync_playwright

SEGUE = (sys.executable, "-c", "from segue.start import main; main()")
LONG_S = 60.0
_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


class Answered:
    """An answer, all of it."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.text = response.read().decode()


class Shown:
    """A dashboard that runs."""

    def __init__(self, process: "subprocess.Popen[str]", url: str) -> None:
        self.process, self.url = process, url
        self.port = urlsplit(url).port or 0
        self.base = f"http://127.0.0.1:{self.port}"
        self.cookie = ""

    def ask(self, path: str, method: str = "GET", body: Any = None, **headers: str) -> Answered:
        """One request, with the cookie if there is one; `headers` by name, _ for -."""
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG_S)
        own = {"cookie": self.cookie} if self.cookie else {}
        if method == "POST":
            own |= {"origin": self.base, "content-type": "application/x-www-form-urlencoded"}
        own |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            sent = None if body is None else urlencode(body)
            client.request(method, path, sent, {k: v for k, v in own.items() if v})
            return Answered(client.getresponse())
        finally:
            client.close()

    def sign_in(self) -> None:
        """With the URL that was printed."""
        answer = self.ask(self.url.removeprefix(self.base))
        assert answer.status == 200, answer.text
        self.cookie = answer.headers["set-cookie"].partition(";")[0]

    def page(self, path: str) -> str:
        """Its HTML; the dashboard must have been signed in to."""
        answer = self.ask(path)
        assert answer.status == 200, answer.text
        return answer.text

    def act(self, what: str, name: str) -> dict[str, Any]:
        """What an action said."""
        csrf = re.search(r'name="csrf" value="(\w+)"', self.page("/runs/" + name))
        assert csrf is not None
        form = {"csrf": csrf[1], "what": what, "name": name}
        found: dict[str, Any] = json.loads(
            self.ask("/act", "POST", form, accept="application/json").text
        )
        return found


@contextmanager
def dashboard(env: Mapping[str, str], *words: str, cwd: Path | None = None) -> Iterator[Shown]:
    """One that runs until the block ends."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [*SEGUE, "dashboard", "--no-open", *words],
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TZ": "UTC", **env},
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdout is not None
        try:
            yield Shown(process, process.stdout.readline().strip())
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(LONG_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
        errors.seek(0)
        assert errors.read() == ""  # whatever was open when it ended


@contextmanager
def browser(folder: Path, width: int = 1440, scheme: str = "light") -> Iterator[BrowserContext]:
    """Debian's Chromium, which reaches loopback alone, with a profile of its own."""
    program = shutil.which("chromium")
    assert program, "chromium is missing: apt-get install chromium (scripts/test does it)"
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(folder),
            executable_path=program,
            headless=True,
            args=list(_FLAGS),
            viewport={"width": width, "height": 900},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        context.set_default_timeout(LONG_S * 1000)
        try:
            yield context
        finally:
            context.close()
