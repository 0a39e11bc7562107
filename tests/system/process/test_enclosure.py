"""Nothing leaves loopback: the enclosure has no other way, and what needs it is refused without."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.playing import missing

from segue.drill.plays import enclosure
from segue.drill.plays.process import PlayLeg

UNREACHABLE = "192.0.2.1"  # TEST-NET-1: never anybody's

NO_UNSHARE = """
import ctypes, os, platform, struct, sys
# A seccomp filter as containers have one: the system call unshare is answered EPERM.
number = {"x86_64": 272, "aarch64": 97}[platform.machine()]
filters = struct.pack("HBBI" * 4,
    0x20, 0, 0, 0,              # which call is it?
    0x15, 0, 1, number,         # if not unshare, skip one
    0x06, 0, 0, 0x00050001,     # EPERM
    0x06, 0, 0, 0x7FFF0000)     # let it pass
held = ctypes.create_string_buffer(filters)
program = struct.pack("HxxxxxxP", 4, ctypes.addressof(held))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.c_char_p(program), 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def enclosable() -> None:
    """What a machine must allow for these tests; CI's does."""
    if reason := enclosure.why_not():
        missing(reason)


@pytest.fixture
def open_world() -> None:
    if enclosure.is_enclosed():
        pytest.skip("this machine has nothing but loopback")


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.usefixtures("enclosable")
def test_inside_no_address_but_loopback_has_a_route() -> None:
    code = f"""
import socket
from segue.drill.plays import enclosure
outside = socket.socket()
outside.settimeout(5)
print(outside.connect_ex(("{UNREACHABLE}", 443)))
datagram = socket.socket(type=socket.SOCK_DGRAM)
print(datagram.connect_ex(("{UNREACHABLE}", 53)))
server = socket.create_server(("127.0.0.1", 0))
with socket.create_connection(server.getsockname()) as client:
    print(client.getpeername()[0])
print(enclosure.is_enclosed(), [name for _, name in socket.if_nameindex()])
"""
    done = run(enclosure.command(python(code)))
    assert done.stderr == ""
    tcp, udp, peer, facts = done.stdout.splitlines()
    assert (int(tcp), int(udp)) == (errno.ENETUNREACH, errno.ENETUNREACH)
    assert peer == "127.0.0.1"
    assert facts.startswith("True ['lo'")


@pytest.mark.usefixtures("enclosable")
def test_inside_everything_else_is_as_it_was(tmp_path: Path) -> None:
    made = tmp_path / "made"
    done = run(enclosure.command(["sh", "-c", f"id -u; id -g; pwd; touch {made}; exit 7"]))
    assert done.stdout.splitlines() == [str(os.getuid()), str(os.getgid()), os.getcwd()]
    assert (made.stat().st_uid, done.returncode) == (os.getuid(), 7)


@pytest.mark.usefixtures("enclosable", "open_world")
def test_without_the_right_to_a_network_alone_a_user_namespace_keeps_the_ids(
    tmp_path: Path,
) -> None:
    """Root in most containers, and everybody else."""
    made = tmp_path / "made"
    code = f"""
import errno, os
from segue.drill.plays import enclosure
unshare = enclosure._unshare
enclosure._unshare = lambda flags: unshare(flags) if flags & 0x10000000 else errno.EPERM
before = os.readlink("/proc/self/ns/user")
enclosure.enter()
print(before != os.readlink("/proc/self/ns/user"), enclosure.is_enclosed())
print(os.getuid(), os.getgid())
open("{made}", "w").close()
"""
    done = run(python(code))
    if "gets no ids" in done.stderr or "no network namespace" in done.stderr:
        missing(done.stderr.strip().rpartition("\n")[2])
    assert done.stdout.split() == ["True", "True", str(os.getuid()), str(os.getgid())]
    assert made.stat().st_uid == os.getuid()


@pytest.mark.usefixtures("enclosable")
def test_a_new_network_whose_loopback_is_down_is_not_enclosed() -> None:
    code = """
from segue.drill.plays import enclosure
enclosure._new_network()
print(enclosure.is_enclosed())
enclosure._raise_loopback()
print(enclosure.is_enclosed())
"""
    assert run(python(code)).stdout.split() == ["False", "True"]


@pytest.mark.parametrize(
    ("interfaces", "routes", "expected"),
    [
        ({"lo": 0x49}, {"lo"}, True),
        ({"lo": 0x49}, set(), True),
        ({"lo": 0x49, "tunl0": 0x80}, {"lo"}, True),  # there in every namespace, and down
        ({"lo": 0x49, "eth0": 0x1043}, {"lo"}, False),
        ({"lo": 0x49, "eth0": 0x1002}, {"lo", "eth0"}, False),
        ({"lo": 0x48}, {"lo"}, False),
        ({}, set(), False),
    ],
)
def test_enclosed_is_what_the_kernel_says(
    interfaces: dict[str, int],
    routes: set[str],
    expected: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("socket.if_nameindex", lambda: list(enumerate(interfaces)))
    monkeypatch.setattr(enclosure, "_flags", interfaces.__getitem__)
    monkeypatch.setattr(enclosure, "_routed", lambda: routes)
    assert enclosure.is_enclosed() is expected


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSPC, errno.EINVAL, errno.ENOMEM])
def test_a_refused_namespace_is_reported_in_one_line(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enclosure, "is_enclosed", lambda: False)
    monkeypatch.setattr(enclosure, "_unshare", lambda flags: number)
    with pytest.raises(enclosure.NotEnclosedError, match="no network namespace") as caught:
        enclosure.enter()
    assert "\n" not in str(caught.value)


def test_no_linux_no_enclosure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not enclosure.is_enclosed()
    assert "Linux" in enclosure.why_not()
    with pytest.raises(enclosure.NotEnclosedError, match="Linux"):
        enclosure.enter()


@pytest.mark.usefixtures("open_world")
def test_where_the_system_refuses_a_namespace_nothing_is_started(tmp_path: Path) -> None:
    """Really refused, by seccomp, as containers do."""
    made = tmp_path / "made"
    refused = [sys.executable, "-c", NO_UNSHARE]
    done = run([*refused, *enclosure.command(["touch", str(made)])])
    assert done.returncode == 3
    assert done.stderr.startswith("segue: no network namespace can be created here: ")
    assert done.stderr.count("\n") == 1
    assert not made.exists()
    code = "from segue.drill.plays import enclosure; print(enclosure.why_not())"
    assert "no network namespace" in run([*refused, *python(code)]).stdout


@pytest.mark.usefixtures("open_world")
def test_a_leg_that_must_be_enclosed_is_not_started_in_the_open(tmp_path: Path) -> None:
    made = tmp_path / "made"
    with pytest.raises(enclosure.NotEnclosedError):
        PlayLeg.start(
            ["touch", str(made)],
            env={"PATH": os.defpath},
            cwd=tmp_path,
            stdout=tmp_path / "out",
            stderr=tmp_path / "err",
            must_be_enclosed=True,
        )
    assert not (tmp_path / "out").exists()
    assert not made.exists()


def test_a_command_that_is_not_there_is_reported_in_one_line() -> None:
    done = run(enclosure.command(["no-such-program"]))
    if done.returncode == 3:
        missing(done.stderr.strip())
    assert (done.returncode, done.stderr) == (
        127,
        "segue: no-such-program: No such file or directory\n",
    )
