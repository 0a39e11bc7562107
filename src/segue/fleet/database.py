"""Opens the fleet's database: creates or updates its tables, or refuses it in one line.

Two versions of segue can share a database as long as they speak the same protocol. The protocol
number is raised when one version can no longer read what the other writes.
"""

import hashlib
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self, TypeVar

import msgspec

from segue.errors import InputError, StateError
from segue.runs.store.coding import pack, unpack

PROTOCOL = 1
MAX_SKEW_S = 1.0
"""Clocks that differ by less count as equal."""
_DEFAULTS = {
    "connect_timeout": 10,
    "application_name": "segue",
    # Notices a dead connection even if nobody closes it.
    "tcp_user_timeout": 15_000,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}
"""Defaults for what the user's URL leaves out."""
_REMEDIES = (
    ("password", "; put the right one in ~/.pgpass, or in url under [fleet]"),
    ("does not support SSL", "; set up TLS there, or change sslmode in url (docs/fleet.md)"),
    ("no encryption", "; it requires TLS: set sslmode=verify-full in url (docs/fleet.md)"),
    ("no pg_hba.conf entry", "; allow this machine and role in its pg_hba.conf"),
    ("root certificate file", "; name its CA in url: sslrootcert=/path/ca.crt (docs/fleet.md)"),
    ("match host name", "; in url, use the host name from its certificate"),
    ("certificate", "; sslrootcert in url must name the CA that signed it (docs/fleet.md)"),
    ("permission denied", "; its owner must grant it to this role (docs/fleet.md)"),
    ("too many clients", "; raise max_connections there"),
    ("Connection refused", "; is PostgreSQL running and listening there? to check: segue doctor"),
    ("timeout expired", "; is it running, and does a firewall let this machine through?"),
    ("does not exist", "; create it there, or change url (docs/fleet.md)"),
    ('missing "="', "; url must begin with postgresql://"),
    ("resolve host", "; check the host name in url"),
    ("No space left", "; its disk is full"),
)
"""What to do, by a phrase in the error of the server or its client."""
_SESSION = (
    "SELECT set_config('idle_in_transaction_session_timeout', '4s', false),"
    " set_config('statement_timeout', '60s', false),"
    " extract(epoch FROM clock_timestamp())::float"
)
"""A client that is cut off during a transaction must not keep its locks: the server would not
notice for hours."""
_LOCK = 7_302_114_200_417
"""The advisory lock of migrations, a number that nothing else uses."""
_MIGRATIONS = os.path.join(os.path.dirname(__file__), "migrations")
_NAME = re.compile(r"([0-9]{4})_\w+\.sql")
_PASSWORD = re.compile(r"(://[^:/@\s]*):[^@\s]*@|(password=)\S+")
T = TypeVar("T")


class FleetDatabase:
    """An open connection. Raises StateError with one line if the database cannot be used."""

    db: Any
    _fault: Any
    ahead_s: float  # the database's clock minus this machine's

    def __init__(self, url: str, *, beside: "FleetDatabase | None" = None) -> None:
        """`beside` is a database in the same thread whose connection this one shares and does not
        close."""
        psycopg = _psycopg()
        self.where = without_password(url)
        self._is_shared = beside is not None
        if beside is not None:
            self.db, self._fault, self.ahead_s = beside.db, beside._fault, beside.ahead_s
            return
        try:
            given = psycopg.conninfo.conninfo_to_dict(url)
            self.db = psycopg.connect(autocommit=True, **{**_DEFAULTS, **given})
        except psycopg.Error as fault:
            raise self._unusable(fault) from None
        self._fault = psycopg.Error
        before = time.time()
        ((*_, last_column),) = self.rows(_SESSION)
        ahead_s = last_column - (before + time.time()) / 2
        self.ahead_s = ahead_s if abs(ahead_s) > MAX_SKEW_S else 0.0
        self._prepare()

    def close(self) -> None:
        """Closes the connection unless it is shared."""
        if not self._is_shared:
            self.db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Runs the block in one transaction."""
        with self._guarded(), self.db.transaction():
            yield

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[Any]:
        """All rows that a statement returns."""
        with self._guarded():
            cursor = self.db.execute(sql, tuple(values))
            return cursor.fetchall() if cursor.description else []

    def version(self) -> int:
        """A number that changes whenever anybody writes something."""
        ((snapshot,),) = self.rows("SELECT pg_current_snapshot()::text")
        return int.from_bytes(hashlib.sha256(snapshot.encode()).digest()[:8], "big")

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except self._fault as fault:
            raise self._unusable(fault) from None

    def _unusable(self, fault: Exception) -> StateError:
        lines = str(fault).strip().splitlines() or [type(fault).__name__]
        reason = _PASSWORD.sub(r"\1\2…", lines[0].strip().removeprefix("connection failed: "))
        reason = " ".join(reason.split())
        do = next((do for sign, do in _REMEDIES if sign in reason), "")
        return StateError(f"{self.where}: the fleet's database cannot be used: {reason}{do}")

    # The version of the tables

    def _prepare(self) -> None:
        steps = _steps()
        form = self._form()
        if form == max(steps):
            return
        if not self._may_change():
            has = f"has tables of version {form}" if form else "has no segue tables yet"
            raise StateError(
                f"{self.where}: the fleet's database {has}, this segue needs version {max(steps)},"
                " and this role may not create them; run once as their owner: segue fleet status"
            )
        with self.alone():
            self.rows("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            self.rows("CREATE SCHEMA IF NOT EXISTS segue")
            self.rows(
                "CREATE TABLE IF NOT EXISTS segue.meta (name text PRIMARY KEY, value int NOT NULL)"
            )
            form = self._form()
            for number in range(form + 1, max(steps) + 1):
                with open(steps[number], encoding="utf-8") as script:
                    self.db.execute(script.read().encode())
            for name, value in (("form", max(steps)), ("protocol", PROTOCOL)):
                self.rows(
                    "INSERT INTO segue.meta VALUES (%s, %s)"
                    " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                    (name, value),
                )

    def _may_change(self) -> bool:
        sql = (
            "SELECT coalesce(has_schema_privilege(to_regnamespace('segue')::oid, 'CREATE'),"
            " has_database_privilege(current_database(), 'CREATE')) AND coalesce((SELECT"
            " pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass('segue.task')),"
            " true)"
        )
        ((may,),) = self.rows(sql)
        return bool(may)

    def _form(self) -> int:
        """The version of the tables; 0 if there are none. Raises StateError if a newer segue made
        them with a protocol that this one does not speak."""
        ((exists,),) = self.rows("SELECT to_regclass('segue.meta') IS NOT NULL")
        if not exists:
            return 0
        found: dict[str, int] = dict(self.rows("SELECT name, value FROM segue.meta"))
        if found.get("protocol", 0) > PROTOCOL:
            raise StateError(
                f"{self.where}: the fleet speaks protocol {found['protocol']}, this segue"
                f" {PROTOCOL}; update segue on this machine"
            )
        return min(found.get("form", 0), max(_steps()))


def without_password(url: str) -> str:
    """The URL without its password, for printing."""
    return _PASSWORD.sub(r"\1\2…@" if "://" in url else r"\2…", url)


def encode(value: object) -> bytes:
    """Encodes a value for a column."""
    data = pack(value)
    return data.encode() if isinstance(data, str) else data


def read(data: bytes, kind: type[T]) -> T:
    """Decodes a value from a column. Raises StateError."""
    try:
        try:
            return unpack(bytes(data).decode(), kind)
        except (UnicodeDecodeError, msgspec.DecodeError):
            return unpack(bytes(data), kind)
    except ValueError as fault:
        raise StateError(
            f"the fleet's database: cannot read a row ({fault}), because a newer segue wrote it;"
            " update segue"
        ) from None


def raw(text: str) -> bytes:
    """Encodes a text for a column."""
    return text.encode("utf-8", "surrogatepass")


def plain(data: bytes) -> str:
    """Decodes a text from a column."""
    return bytes(data).decode("utf-8", "surrogatepass")


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError:
        raise InputError(
            "a fleet needs psycopg, which is not installed: install segue with its fleet extra, or"
            ' run pip install "psycopg[binary]" in the same environment'
        ) from None
    return psycopg


def _steps() -> dict[int, str]:
    matches = (_NAME.fullmatch(name) for name in os.listdir(_MIGRATIONS))
    return {int(match[1]): os.path.join(_MIGRATIONS, match[0]) for match in matches if match}
