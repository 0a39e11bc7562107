"""Nobody but the browser that was given the URL sees or does anything."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.homes import SESSION, prompt, reply
from support.running import PATIENT, stage
from support.watch.dashboards import SEGUE, Shown, dashboard

PATHS = ("/", "/runs", "/runs/run-1", "/sessions/0", "/history", "/log", "/live", "/static/app.js")


@pytest.fixture
def env(own_home: Path) -> dict[str, str]:
    folder = own_home / ".claude/projects/-p"
    folder.mkdir(parents=True)
    (folder / f"{SESSION}.jsonl").write_text(f"{prompt()}\n{reply(1, 50_000)}\n")
    (own_home / "segue").mkdir()
    return {"HOME": str(own_home), "SEGUE_HOME": str(own_home / "segue")}


def test_the_url_works_once_and_becomes_a_cookie_that_scripts_and_other_sites_never_see(
    env: dict[str, str],
) -> None:
    with dashboard(env) as shown:
        path = shown.url.removeprefix(shown.base)
        first = shown.ask(path)
        again = shown.ask(path)
        wrong = shown.ask("/?token=" + "x" * 43)
        shown.cookie = first.headers["set-cookie"].partition(";")[0]
        signed_in = shown.ask("/")
        token = path.partition("token=")[2]

    assert first.status == 200
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(first.headers["set-cookie"].split("; "))
    assert token not in first.text + first.headers["set-cookie"] + signed_in.text
    assert (again.status, wrong.status, signed_in.status) == (403, 403, 200)
    assert "set-cookie" not in again.headers


def test_whoever_has_no_cookie_gets_403_and_nothing_else(env: dict[str, str]) -> None:
    with dashboard(env) as shown:
        answers = [shown.ask(path) for path in PATHS]
        posted = shown.ask("/act", "POST", {"what": "cancel", "name": "run-1"})
        shown.cookie = f"segue-{shown.port}=wrong; segue=x"
        answers += [shown.ask(path) for path in PATHS]
    assert {answer.status for answer in (*answers, posted)} == {403}
    assert len({answer.text for answer in (*answers, posted)}) == 1
    assert "access denied" in posted.text


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_another_user_of_the_machine_gets_nothing(env: dict[str, str]) -> None:
    ask = (
        "import encodings.idna, os, sys, urllib.request as u, urllib.error as e\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: print(u.urlopen(sys.argv[1]).read())\n"
        "except e.HTTPError as told: print(told.code)\n"
    )
    with dashboard(env) as shown:
        shown.sign_in()
        told = [
            subprocess.run(
                [sys.executable, "-c", ask, url], capture_output=True, text=True, timeout=60
            ).stdout.strip()
            for url in (shown.base, shown.url)  # also the URL that was used already
        ]
        command_line = Path(f"/proc/{shown.process.pid}/cmdline").read_bytes()
    assert told == ["403", "403"]
    assert b"token" not in command_line


def test_other_names_other_sites_other_methods_and_forged_forms_are_refused(tmp_path: Path) -> None:
    with stage("silent-hang", within=tmp_path, policy=PATIENT) as s:
        _, run_id = s.new_run()
        with dashboard(s.env) as shown:
            shown.sign_in()
            csrf = _csrf(shown, run_id)
            form = {"csrf": csrf, "what": "cancel", "name": run_id}
            query = "&".join(f"{k}={v}" for k, v in form.items())
            told = {
                "rebound name": shown.ask("/", host=f"evil.example:{shown.port}").status,
                "no port": shown.ask("/", host="127.0.0.1").status,
                "other origin": shown.ask("/", origin="http://evil.example").status,
                "a form of another site": shown.ask(
                    "/act", "POST", form, origin="http://evil.example"
                ).status,
                "a form of another port": shown.ask(
                    "/act", "POST", form, origin=f"http://127.0.0.1:{shown.port + 1}"
                ).status,
                "a form of nowhere": shown.ask("/act", "POST", form, origin="").status,
                "null": shown.ask("/act", "POST", form, origin="null").status,
                "no second token": shown.ask("/act", "POST", {**form, "csrf": ""}).status,
                "wrong second token": shown.ask("/act", "POST", {**form, "csrf": "0" * 64}).status,
                "GET": shown.ask(f"/act?{query}").status,
                "HEAD": shown.ask(f"/act?{query}", "HEAD").status,
                "PUT": shown.ask("/act", "PUT", form).status,
                "POST to a page": shown.ask("/", "POST", form).status,
                "no such action": shown.ask("/act", "POST", {**form, "what": "run"}).status,
                "an option for a name": shown.ask("/act", "POST", {**form, "name": "--x"}).status,
            }
            still = s.state(run_id)
    assert told == {
        "rebound name": 421,
        "no port": 421,
        "other origin": 403,
        "a form of another site": 403,
        "a form of another port": 403,
        "a form of nowhere": 403,
        "null": 403,
        "no second token": 403,
        "wrong second token": 403,
        "GET": 405,
        "HEAD": 405,
        "PUT": 405,
        "POST to a page": 405,
        "no such action": 400,
        "an option for a name": 409,
    }
    assert still == "working"


def test_every_answer_forbids_inline_code_and_no_page_has_any(env: dict[str, str]) -> None:
    with dashboard(env) as shown:
        closed = shown.ask("/")
        shown.sign_in()
        answers = [shown.ask(path) for path in PATHS if path != "/live"]
    for answer in (closed, *answers):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["cache-control"] == "no-store"
    for answer in answers[:-1]:
        assert not re.search(r"<[^>]*\s(?:style|on\w+)=", answer.text)
        assert not re.search(
            r"<script(?! src=\"/static/app.js\" defer)|<style|https?://", answer.text
        )


def test_a_port_that_is_taken_is_reported_in_one_line(env: dict[str, str]) -> None:
    with dashboard(env) as shown:
        ended = subprocess.run(
            [*SEGUE, "dashboard", "--no-open", "--port", str(shown.port)],
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"segue: port {shown.port} cannot be used")
    assert len(ended.stderr.splitlines()) == 1


def test_no_other_command_loads_what_serves_pages(env: dict[str, str]) -> None:
    script = (
        "import sys\nfrom segue.start import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(sorted({n.split('.')[0] for n in sys.modules} & {'starlette', 'uvicorn', 'jinja2',"
        " 'playwright'}))"
    )
    for words in (["status", "--json"], ["runs"], ["--help"], ["notes"]):
        ended = subprocess.run(
            [sys.executable, "-c", script, *words],
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ended.stdout.splitlines()[-1] == "[]", words


def _csrf(shown: Shown, run_id: str) -> str:
    found = re.search(r'name="csrf" value="(\w+)"', shown.page(f"/runs/{run_id}"))
    assert found is not None
    return found[1]
