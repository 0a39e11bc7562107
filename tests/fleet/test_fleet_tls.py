"""A fleet over TLS: a server with a certificate of an authority of its own, which lets nobody in
without."""

import os
import pwd
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
from click.testing import CliRunner
from support.fleet.certificates import authority, certificate
from support.fleet.postgres import Postgres, postgres
from support.playing import missing

from segue.cli import cli

PASSWORD = "hunter2-hunter2"


class Secured(NamedTuple):
    """A server that demands TLS."""

    server: Postgres
    port: int
    ca: Path
    wrong_ca: Path

    def url(self, more: str, host: str = "localhost") -> str:
        who = f"{self.server.user}:{PASSWORD}"
        return f"postgresql://{who}@{host}:{self.port}/postgres?{more}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    if shutil.which("openssl") is None:
        missing("openssl is not installed")
    made = tmp_path_factory.mktemp("certificates")
    ca, wrong = authority(made, "ca"), authority(made, "wrong")
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = int(found.getsockname()[1])
    with postgres() as server:
        server.stop()
        data = server.folder / "data"
        for file in certificate(made, ca, "localhost"):
            shutil.copy(file, data / file.name)
            (data / file.name).chmod(0o600)
            if os.geteuid() == 0:
                owner = pwd.getpwnam("postgres")
                os.chown(data / file.name, owner.pw_uid, owner.pw_gid)
        (data / "pg_hba.conf").write_text(
            "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n"
        )
        server.start(
            "listen_addresses=127.0.0.1", f"port={port}", "ssl=on", "ssl_cert_file=server.crt",
            "ssl_key_file=server.key",
        )  # fmt: skip
        with psycopg.connect(f"{server.url()}&port={port}", autocommit=True) as db:
            db.execute(f"ALTER ROLE {server.user} PASSWORD '{PASSWORD}'".encode())
        yield Secured(server, port, ca, wrong)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def segue(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == code, (done.output, done.exception)
    assert PASSWORD not in done.output
    return done.output


def test_with_the_right_authority_and_name_a_machine_works_and_the_doctor_says_that_it_is_encrypted(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = secured.url(f"sslmode=verify-full&sslrootcert={secured.ca}")
    monkeypatch.setenv("SEGUE_FLEET", url)
    assert "no machines yet" in segue("fleet", "status")
    told = CliRunner().invoke(cli, ("doctor",)).output
    assert "encrypted (TLSv1.3); its certificate is checked (sslmode=verify-full)" in told
    with psycopg.connect(url) as db:
        assert db.pgconn.ssl_in_use


@pytest.mark.parametrize(
    ("what", "said", "do"),
    [
        ("wrong authority", "certificate verify failed", "the CA that signed it"),
        (
            "wrong name",
            'does not match host name "127.0.0.1"',
            "the host name from its certificate",
        ),
        ("no authority", "root certificate file", "sslrootcert=/path/ca.crt"),
        ("plain", "no encryption", "sslmode=verify-full"),
    ],
)
def test_what_is_wrong_with_tls_is_one_line_with_what_to_do(
    secured: Secured, what: str, said: str, do: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = "sslmode=verify-full"
    url = {
        "wrong authority": secured.url(f"{full}&sslrootcert={secured.wrong_ca}"),
        "wrong name": secured.url(f"{full}&sslrootcert={secured.ca}", host="127.0.0.1"),
        "no authority": secured.url(full),
        "plain": secured.url("sslmode=disable"),
    }[what]
    monkeypatch.setenv("SEGUE_FLEET", url)
    told = segue("fleet", "status", code=2)
    print(told)
    (line,) = told.strip().splitlines()
    assert said in line
    assert do in line


def test_the_doctor_says_that_nobody_checks_the_certificate(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEGUE_FLEET", secured.url("sslmode=require"))
    told = CliRunner().invoke(cli, ("doctor",)).output
    assert "encrypted (TLSv1.3); its certificate is not checked (sslmode=require)" in told
