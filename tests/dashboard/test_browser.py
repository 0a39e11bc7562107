"""The pages in a real browser: Debian's Chromium, which reaches loopback alone."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page
from support.homes import prompt, reply
from support.playing import AGENTS_FOLDER
from support.running import PATIENT, stage
from support.watch.dashboards import browser, dashboard
from support.watching import watching

AXE = Path(AGENTS_FOLDER).parent / "axe/4.14.0/node_modules/axe-core/axe.min.js"
HOSTILE = '<img src=x onerror=alert(1)>"onerror=alert(2)'
SESSION = "51111111-2222-4333-8444-555555555555"


def write(file: Path, number: int, used: int, at: float) -> None:
    """One more reply."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as out:
        if number == 1:
            out.write(prompt(HOSTILE, at=at, session=SESSION, cwd=f"/x/{HOSTILE}") + "\n")
        out.write(reply(number, used, at=at, session=SESSION, cwd=f"/x/{HOSTILE}") + "\n")


@contextmanager
def running_claude(folder: Path) -> Iterator[None]:
    """A process by the name of claude that says which session it works on."""
    program = folder / "claude"
    shutil.copy(os.path.realpath(shutil.which("sleep") or "/bin/sleep"), program)
    with subprocess.Popen([program, "86400"], cwd=folder) as process:
        ticks = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
        told = {"pid": process.pid, "sessionId": SESSION, "procStart": ticks, "status": "idle"}
        (folder / "sessions").mkdir(exist_ok=True)
        (folder / f"sessions/{process.pid}.json").write_text(json.dumps(told))
        try:
            yield
        finally:
            process.kill()


def violations(page: Page) -> list[str]:
    """What axe-core finds wrong: rule and place."""
    assert AXE.exists(), "axe-core is missing: scripts/test installs it"
    page.evaluate(AXE.read_text())  # by the debugger: the page's own policy allows no such thing
    found: list[str] = page.evaluate(
        "axe.run().then(r => r.violations.flatMap(v => v.nodes.map(n => `${v.id}: ${n.html}`)))"
    )
    return found


def live(page: Page, url: str) -> None:
    page.goto(url)
    page.wait_for_selector("#link[data-state=live]")


def test_pages_load_keep_up_tell_a_dead_daemon_and_have_no_barriers(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        file = Path(s.env["CLAUDE_CONFIG_DIR"]) / f"projects/-hostile/{SESSION}.jsonl"
        write(file, 1, 20_000, time.time() - 60)
        assert s.run().code == 0
        (run_id,) = s.run_ids()
        with (
            running_claude(Path(s.env["CLAUDE_CONFIG_DIR"])),
            watching(s.home, s.env) as daemon,
            dashboard(s.env) as shown,
            browser(tmp_path / "profile") as context,
        ):
            page, wrong = context.new_page(), list[str]()
            page.on("dialog", lambda dialog: wrong.append(f"dialog {dialog.message}"))
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on(
                "console", lambda said: wrong.append(said.text) if said.type == "error" else None
            )
            live(page, shown.url)
            card = page.locator(".card", has_text="onerror=alert(1)")
            session = card.locator("h3 a").get_attribute("href")
            for path in ("/", "/runs", f"/runs/{run_id}", str(session), "/history", "/log"):
                for scheme in ("light", "dark"):
                    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
                    live(page, shown.base + path)
                    assert violations(page) == [], (path, scheme)
                page.set_viewport_size({"width": 390, "height": 800})
                wide = page.evaluate("document.documentElement.scrollWidth")
                assert wide <= 390, path
                page.set_viewport_size({"width": 1440, "height": 900})

            live(page, shown.base)
            page.keyboard.press("Tab")
            assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
            page.evaluate("window.isSame = true")
            assert card.locator(".doing").text_content() == "Done."
            card.get_by_role("button", name="Pause").press("Enter")
            card.get_by_role("button", name="Unpause").press("Enter")
            card.get_by_role("button", name="Pause", exact=True).wait_for()
            gauge = card.locator(".gauge .fill")
            before = float(gauge.get_attribute("width") or 0)
            write(file, 2, 150_000, time.time())
            card.locator("strong", has_text="75%").wait_for()
            assert float(gauge.get_attribute("width") or 0) > before > 0

            daemon.kill()
            page.get_by_text("No daemon is running.").wait_for()
            daemon.start()
            page.get_by_text("No daemon is running.").wait_for(state="detached")
            write(file, 3, 180_000, time.time())
            card.locator("strong", has_text="90%").wait_for()
            assert page.evaluate("window.isSame")  # never loaded again

            shown.process.terminate()
            page.wait_for_selector("#link[data-state=lost]")
        # The last one is the browser's own word on the connection that was just ended.
        assert [each for each in wrong if "ERR_" not in each] == []


def test_a_run_is_ended_and_resumed_by_its_buttons(tmp_path: Path) -> None:
    hangs = tmp_path / "hangs.toml"  # each time: a resumed run works for as long as it is looked at
    hangs.write_text(
        "about = 'The API never answers.'\nlimit_s = 15\n[job]\nsteps = 6\n"
        "[[rules]]\nbefore_step = 3\ndelivery = 'hang'\ntimes = 100\n"
    )
    with stage(hangs, within=tmp_path, policy=PATIENT) as s:
        _, run_id = s.new_run()
        with dashboard(s.env) as shown, browser(tmp_path / "profile") as context:
            page = context.new_page()
            live(page, shown.url)
            live(page, f"{shown.base}/runs/{run_id}")
            page.get_by_text("Cancel…").press("Enter")
            page.get_by_role("button", name="Cancel this run").press("Enter")
            page.locator("#said.fine", has_text=f"{run_id} is cancelled").wait_for()
            page.locator(".run .state", has_text="cancelled").wait_for()
            assert s.state(run_id) == "cancelled"
            page.get_by_role("button", name="Resume").click()
            page.locator("#said.fine", has_text=f"segue attach {run_id}").wait_for()
            page.get_by_text("Cancel…").wait_for()
            assert s.segue("cancel", run_id).code == 0
