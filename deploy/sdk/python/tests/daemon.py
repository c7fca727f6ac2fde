"""A daemon for tests, on a unix socket and on TLS, with a data directory that is deleted."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx

REPOSITORY = Path(__file__).resolve().parents[4]
PATIENCE = 300.0
"""The longest wait for an event, seconds, on a busy machine."""
PR_SET_PDEATHSIG = 1
UIDS = 64
"""Users of the jailed processes of a daemon."""
FIRST_UID = 1_880_000_000 + os.getpid() % 65536 * 4 * UIDS
"""The first user of the first daemon. Daemons with common users count each other's threads."""
NUMBERS = itertools.count()


def program(variable: str, usual: Path) -> Path:
    """Return the path in an environment variable, or the usual one."""
    path = Path(os.environ.get(variable, usual))
    if not path.exists():
        raise FileNotFoundError(f"{path}: build or fetch it, or set {variable}")
    return path


def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("what should happen did not")
        time.sleep(0.02)


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for 127.0.0.1 that signs itself. Result: it and its key, PEM files."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    name = ["-subj", "/CN=hartline", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *name, *files], check=True, capture_output=True)
    return certificate, key


def _die_with_parent() -> None:
    # A test run that is killed leaves no daemon.
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Daemon:
    """A running daemon."""

    def __init__(self, *settings: str) -> None:
        binary = program(
            "HARTLINED", REPOSITORY / "target/x86_64-unknown-linux-gnu/release/hartlined"
        )
        self.folder = Path(tempfile.mkdtemp(prefix="hartline-sdk-"))
        self.socket = self.folder / "socket"
        self.host = f"unix://{self.socket}"
        self.ca, key = make_certificate(self.folder)
        configuration = [
            "listen = '127.0.0.1:0'",
            f"tls_certificate = '{self.ca}'",
            f"tls_key = '{key}'",
            f"first_uid = {FIRST_UID + next(NUMBERS) % 4 * UIDS}",
            f"uids = {UIDS}",
            "webhooks = true",
            "webhook_networks = ['127.0.0.0/8']",
            *settings,
        ]
        file = self.folder / "hartlined.toml"
        file.write_text("\n".join(configuration))
        self._command = [str(binary), "--config", str(file), "--socket", str(self.socket)]
        self._command += ["--data-dir", str(self.folder / "data")]
        transport = httpx.HTTPTransport(uds=str(self.socket))
        self.http = httpx.Client(transport=transport, base_url="http://test", timeout=PATIENCE)
        self.start()

    def start(self) -> None:
        """Start the daemon, with the data of the one that was killed."""
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - it makes one system call
            )
        try:
            until(self._is_ready)
        except Exception:
            self.close()
            raise
        address = self.log().split('tcp="')[-1].split('"')[0]
        self.tls = f"https://{address}"

    def log(self) -> str:
        """Return the daemon's standard error."""
        return (self.folder / "log").read_text()

    def _is_ready(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(f"the daemon has ended: {self.log()}")
        try:
            return self.http.get("/readyz").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def make_key(self, scope: str, tenant: str = "default") -> str:
        """Make an API key."""
        answer = self.http.post(f"/v1/tenants/{tenant}/keys", json={"scope": scope})
        answer.raise_for_status()
        return str(answer.json()["key"])

    def make_tenant(self, name: str, **quota: int) -> None:
        """Make a tenant with a quota."""
        self.http.put(f"/v1/tenants/{name}", json=quota).raise_for_status()

    def kill(self) -> None:
        """End the daemon by SIGKILL. The service ends with its spawner."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """End all machines and runs, and all processes of the daemon. Delete its data."""
        if self.process.poll() is None:
            self._end_machines()
        self.http.close()
        self.kill()
        # pytest shows it if a test has failed.
        print(self.log())
        self.end_processes()
        shutil.rmtree(self.folder)

    def end_processes(self) -> None:
        """End the processes that the daemon has left."""
        for pid in self._users():
            # It may have ended meanwhile.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not self._users())

    def _end_machines(self) -> None:
        for tenant in self.http.get("/v1/tenants").json():
            headers = {"Hartline-Tenant": tenant["name"]}
            for machine in self.http.get("/v1/machines?limit=1000", headers=headers).json():
                # A machine that has ended cannot be killed.
                self.http.post(f"/v1/machines/{machine['id']}/kill", headers=headers)
            for run in self.http.get("/v1/runs?limit=1000", headers=headers).json():
                self.http.delete(f"/v1/runs/{run['id']}", headers=headers)

    def _users(self) -> list[int]:
        """Return the processes of the daemon: their command lines name its folder.

        The paths of their open files do not: a jailed process has another root directory.
        """
        found = []
        for process in Path("/proc").iterdir():
            try:
                line = (process / "cmdline").read_bytes() if process.name.isdigit() else b""
            except OSError:
                # The process has ended.
                continue
            if str(self.folder).encode() in line:
                found.append(int(process.name))
        return found
