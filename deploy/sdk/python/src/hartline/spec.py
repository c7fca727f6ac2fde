"""Descriptions of the programs that runs and machines execute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields


@dataclass(frozen=True, slots=True)
class Mount:
    """A volume in a machine."""

    volume: str
    """Name of the volume."""
    path: str
    """Absolute path of the volume in the machine. Missing directories are created."""
    read_only: bool = False
    """Whether the program may only read the volume."""


@dataclass(frozen=True, slots=True)
class Port:
    """A TCP port of the host whose connections lead to a port of the machine."""

    host: int
    """Port of the host, 1024 to 65535, one of those that the operator allows."""
    guest: int
    """Port of the machine."""
    address: str | None = None
    """Address of the host. The default is the operator's."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """The size of a terminal, characters."""

    rows: int = 24
    """Lines, 1 to 65535."""
    columns: int = 80
    """Characters of a line, 1 to 65535."""


@dataclass(frozen=True, slots=True)
class SecretUse:
    """A secret that a program gets: as a file, unless it gets an environment variable only."""

    secret: str
    """Name of the secret."""
    file: str | None = None
    """Name of the file in ``/run/secrets``. The default is the secret's name, or no file if there
    is an environment variable."""
    env: str | None = None
    """Name of the environment variable."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """The receiver of a signed message about the end of a machine or run."""

    url: str
    """Address of the receiver, which gets a POST request."""
    secret: str
    """Name of the tenant's secret that signs."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A program with its arguments and resources, or a snapshot to continue.

    Sequences become tuples. A spec for the daemon has either ``program`` or ``snapshot``
    (:meth:`continuing`). Specs in answers of the daemon may have both.
    """

    program: str = ""
    """The program: its id, a unique begin of the id, or its name."""
    args: Sequence[str] = ()
    """Arguments, without the program's own name."""
    path: str | None = None
    """Path of the program in an uploaded root file system."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables."""
    cpus: int = 1
    """vCPUs, 1 to 64."""
    memory: int = 256 << 20
    """Memory, bytes, at least 64 MiB."""
    timeout_ms: int | None = None
    """Time limit, milliseconds. After it the program ends with exit code 124. The default is a
    minute for runs, and no limit for machines."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the run or machine."""
    interactive: bool = False
    """Keep the standard input of a machine open for clients that attach."""
    volumes: Sequence[Mount] = ()
    """Volumes, at most 8."""
    cpu_class: str = "shared"
    """``shared`` or ``dedicated``: whether each vCPU has a CPU of the host for itself."""
    network: str = "none"
    """``none`` or ``tenant``."""
    user: str | None = None
    """User and group of the program as numbers, ``UID`` or ``UID:GID``. The default is root."""
    workdir: str | None = None
    """Directory in which the program starts. The default is ``/``."""
    hostname: str | None = None
    """Host name. The default is ``hartline``."""
    read_only: bool = False
    """Mount the root file system read-only."""
    ports: Sequence[Port] = ()
    """Published ports of a machine or run in the network of its tenant, at most 16."""
    snapshot: str | None = None
    """The snapshot to continue: its id, a unique begin of the id, or its name."""
    restart: str = "no"
    """Restart policy of a machine: ``no``, ``on-failure``, ``on-failure:N`` or ``always``."""
    terminal: Terminal | None = None
    """Run the program of a machine on a terminal of this size. Then all output is standard output,
    and the end of standard input is the character control-D (``b"\\x04"``)."""
    secrets: Sequence[SecretUse] = ()
    """Secrets of the tenant that the program gets, at most 32."""
    auto_remove: bool = False
    """Delete the machine ten seconds after its end. It needs the restart policy ``no``."""
    idle_timeout_s: int | None = None
    """Suspend the machine when it has been idle for so many seconds. It goes on when it is started,
    or gets input, a command or a connection to a published port."""
    webhook: Webhook | None = None
    """The receiver of the message that the machine or the asynchronous run has ended."""
    core_limit: int | None = None
    """Longest core dump of a machine, bytes. With it, the program runs with exact registers, which
    makes it slower."""

    def __post_init__(self) -> None:
        if isinstance(self.args, str):
            raise TypeError(f"args is the text {self.args!r}: it must be a sequence of texts")
        # Equal specs compare equal, whatever kind of sequence they were made of.
        for name in ("args", "volumes", "ports", "secrets"):
            object.__setattr__(self, name, tuple(getattr(self, name)))

    @classmethod
    def continuing(
        cls,
        snapshot: str,
        *,
        timeout_ms: int | None = None,
        labels: Mapping[str, str] | None = None,
        interactive: bool = False,
        cpu_class: str = "shared",
        ports: Sequence[Port] = (),
        restart: str = "no",
        auto_remove: bool = False,
        idle_timeout_s: int | None = None,
        webhook: Webhook | None = None,
    ) -> Spec:
        """Describe the continuation of a snapshot, with everything that may differ from it.

        Args:
            snapshot: Id of the snapshot, a unique begin of the id, or its name.
            timeout_ms: Time limit from now on, milliseconds.
            labels: Labels of the run or machine.
            interactive: Keep the standard input of a machine open for clients that attach.
            cpu_class: ``shared`` or ``dedicated``.
            ports: Published ports, if the snapshot's machine was in the network of its tenant.
            restart: Restart policy of a machine.
            auto_remove: Delete the machine ten seconds after its end.
            idle_timeout_s: Suspend the machine when it has been idle for so many seconds.
            webhook: The receiver of the message that the machine or run has ended.

        """
        return cls(
            snapshot=snapshot,
            timeout_ms=timeout_ms,
            labels=labels or {},
            interactive=interactive,
            cpu_class=cpu_class,
            ports=ports,
            restart=restart,
            auto_remove=auto_remove,
            idle_timeout_s=idle_timeout_s,
            webhook=webhook,
        )


_DEFAULTS = Spec()


def to_json(spec: Spec) -> dict[str, object]:
    """Return a spec as a request has it: without the fields that have their default values."""
    changed = {}
    for item in fields(Spec):
        value = getattr(spec, item.name)
        if value != getattr(_DEFAULTS, item.name):
            changed[item.name] = _plain(value)
    return changed


def _plain(value: object) -> object:
    if isinstance(value, Mount | Port | SecretUse | Terminal | Webhook):
        pairs = ((item.name, getattr(value, item.name)) for item in fields(value))
        return {name: part for name, part in pairs if part is not None}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return value
