"""Certificates of an authority of the tests' own."""

import subprocess
from pathlib import Path


def authority(folder: Path, name: str) -> Path:
    """A new authority; its certificate, with the key beside it."""
    made = folder / f"{name}.crt"
    _openssl(
        "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
        "-days", "2", "-subj", f"/CN={name}", "-keyout", folder / f"{name}.key", "-out", made,
    )  # fmt: skip
    return made


def certificate(folder: Path, ca: Path, host: str) -> tuple[Path, Path]:
    """A server's certificate for that host, and its key."""
    key, request, made = folder / "server.key", folder / "server.csr", folder / "server.crt"
    _openssl(
        "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
        "-subj", f"/CN={host}", "-keyout", key, "-out", request,
    )  # fmt: skip
    names = folder / "names"
    names.write_text(f"subjectAltName=DNS:{host}\n")
    _openssl(
        "x509", "-req", "-in", request, "-CA", ca, "-CAkey", ca.with_suffix(".key"),
        "-CAcreateserial", "-days", "2", "-extfile", names, "-out", made,
    )  # fmt: skip
    return made, key


def _openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)
