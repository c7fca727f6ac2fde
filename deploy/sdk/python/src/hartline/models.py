"""Objects in answers of the daemon. Times are milliseconds since 1970 (``…_ms``)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ._decode import decode
from .errors import ProtocolError
from .spec import Spec

_ACTIVE = frozenset({"queued", "starting", "running", "paused", "restarting"})


@dataclass(frozen=True, slots=True)
class Version:
    """The version of a daemon."""

    version: str
    """Version of the daemon."""
    translator: str
    """Version of its translator."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a daemon can run programs."""

    ready: bool
    """Whether a VMM is ready, or will be soon, and the disk has room."""
    vmms_ready: int
    """VMMs that are ready."""
    limits_enforced: bool
    """Whether cgroup limits are enforced."""
    limits: str
    """The reason if not; otherwise empty."""
    core_scheduling: bool
    """Whether tenants are kept off each other's cores."""
    cores: str
    """The reason if not; otherwise empty."""
    networks_available: bool
    """Whether tenants can have networks."""
    networks: str
    """The reason if not; otherwise empty."""
    storage_available: bool
    """Whether the disk of the data directory has room."""
    storage: str
    """The reason if not; otherwise empty."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The owner of a key."""

    tenant: str
    """Name of the tenant."""
    scope: str
    """Rights of the key: ``read``, ``write`` or ``admin``."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What a tenant, or all tenants together, used in a time of about ten seconds."""

    time_ms: int
    """End of the time."""
    span_ms: int
    """Length of the time, milliseconds."""
    running: int
    """Machines and runs that run at the end of the time."""
    memory: int
    """Their memory, bytes."""
    vcpus: int
    """Their vCPUs on shared CPUs."""
    cpu_ms: int
    """CPU time that machines and asynchronous runs took, milliseconds. The time after the last
    sample before a machine's end is not included."""
    ended: int
    """Ends of runs, and of programs of machines."""
    unsuccessful: int
    """Those with another exit code than 0, and those that were killed, timed out or failed."""
    exits: int
    """Exits that KVM counted, without those for interrupts of the host, of the machines and
    asynchronous runs with operations."""
    operations: int
    """Their operations: packets that they received and sent, and requests to volumes."""
    requests: int
    """Requests to the API, with a valid key or of root."""


@dataclass(frozen=True, slots=True)
class Program:
    """An uploaded program, and the progress of its preparation."""

    id: str
    """SHA-256 of the upload."""
    name: str
    """Name of the upload."""
    kind: str
    """``elf`` for one program, ``rootfs`` for a tar file of a root file system."""
    size: int
    """Length of the upload, bytes."""
    tree_size: int
    """Bytes of the unpacked file system, without holes."""
    programs: tuple[str, ...]
    """Programs of a root file system that are translated ahead of time."""
    state: str
    """``packing``, ``translating``, ``ready`` or ``failed``. The program can run when it is
    ``translating`` or ``ready``."""
    message: str
    """The error; empty if there is none. Parts of a ``ready`` program with an error are
    interpreted."""
    problem: str
    """The stable code of the error, for example ``bad-upload``; empty if there is none."""
    created_ms: int
    """Time of the first upload."""
    instructions_done: int | None = None
    """During translation: translated guest instructions of the present file."""
    instructions: int | None = None
    """During translation: all guest instructions of the present file."""


@dataclass(frozen=True, slots=True)
class Output:
    """Output of a program on one of its streams."""

    data: bytes
    """The bytes."""
    truncated: bool = False
    """Whether the program wrote more than this."""
    missing: int = 0
    """The number of bytes that are not there."""

    @property
    def text(self) -> str:
        """The bytes as UTF-8. Bytes that are not UTF-8 become U+FFFD."""
        return self.data.decode(errors="replace")

    @classmethod
    def from_json(cls, value: Mapping[str, object], where: str) -> Output:
        """Decode an output of an answer: ``text``, or ``base64`` if the bytes are not UTF-8."""
        fields = decode(_Output, value, where)
        if fields.text is not None:
            data = fields.text.encode()
        elif fields.base64 is not None:
            try:
                data = base64.b64decode(fields.base64, validate=True)
            except binascii.Error as error:
                raise ProtocolError(f"the daemon's answer: {where}.base64: {error}") from error
        else:
            raise ProtocolError(f"the daemon's answer has no {where}.text")
        return cls(data, fields.truncated, fields.missing)


@dataclass(frozen=True, slots=True)
class _Output:
    text: str | None = None
    base64: str | None = None
    truncated: bool = False
    missing: int = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of an output, as the program has written it."""

    stream: Literal["stdout", "stderr"]
    """The output."""
    data: bytes
    """The bytes. A piece may end in the middle of a character."""


@dataclass(frozen=True, slots=True)
class Exits:
    """Exits of vCPUs to the VMM, by reason."""

    calls: int = 0
    """Host calls of the guest runtime."""
    kicks: int = 0
    """Kicks of volumes and timers."""
    interruptions: int = 0
    """Interruptions by the VMM."""
    sleeps: int = 0
    """Sleeps of idle vCPUs."""
    wakes: int = 0
    """Wake-ups of one vCPU by another one."""
    yields: int = 0
    """Yields of one vCPU to another one."""
    devices: int = 0
    """Accesses to registers of devices."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Traffic of a network interface."""

    received_packets: int
    """Packets that the machine received."""
    received_bytes: int
    """Their bytes."""
    sent_packets: int
    """Packets that the machine sent."""
    sent_bytes: int
    """Their bytes."""
    dropped: int | None = None
    """Sent packets that the host dropped, once the machine has ended."""
    throttled: int | None = None
    """Number of times that packets waited for the limits, once the machine has ended."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The end of a run."""

    exit_code: int
    """Exit code of the program; 128 plus the signal number if a signal killed it, 124 after the
    time limit, 125 if it could not run to its end."""
    message: str
    """Why the program did not end by itself; empty if it did."""
    stdout: Output
    """Standard output."""
    stderr: Output
    """Standard error."""
    queued_ms: float
    """Milliseconds that the run waited for the scheduler."""
    boot_ms: float
    """Milliseconds from then to the start of the program."""
    run_ms: float
    """Milliseconds that the program ran."""
    exits: Exits
    """Exits of its vCPUs to the VMM."""
    kvm_exits: int | None = None
    """Exits by KVM's count."""
    network: Traffic | None = None
    """Traffic of its network interface, if it had one."""


@dataclass(frozen=True, slots=True)
class Run:
    """A kept run: an asynchronous one, or one with an idempotency key."""

    id: str
    """Its id."""
    state: str
    """``queued``, ``starting``, ``running``, ``exited`` or ``failed``."""
    message: str
    """The error that ended it; empty if there was none."""
    outcome: RunOutcome | None
    """The outcome, when the program has ended."""
    created_ms: int
    """Time of the request."""
    started_ms: int | None
    """Time of its start."""
    ended_ms: int | None
    """Time of its end."""

    @property
    def is_active(self) -> bool:
        """Whether the run has not ended."""
        return self.state in _ACTIVE


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A kept run in a list, without its output."""

    id: str
    """Its id."""
    spec: Spec
    """The program, its arguments and its limits."""
    state: str
    """As of :class:`Run`."""
    exit_code: int | None
    """Exit code of its program."""
    message: str
    """The error that ended it; empty if there was none."""
    created_ms: int
    """Time of the request."""
    started_ms: int | None
    """Time of its start."""
    ended_ms: int | None
    """Time of its end."""


@dataclass(frozen=True, slots=True)
class CoreFile:
    """The core dump of a machine."""

    bytes: int
    """Length of the file, bytes."""
    error: str = ""
    """The reason why the file has only the begin of the core dump; empty if it is complete."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine."""

    id: str
    """Its id."""
    name: str | None
    """Its name, if it has one."""
    spec: Spec
    """The program, its arguments and its limits."""
    state: str
    """``created``, ``queued``, ``starting``, ``running``, ``paused``, ``restarting``,
    ``suspended``, ``exited`` or ``failed``."""
    exit_code: int | None
    """Exit code of its program."""
    restarts: int
    """Number of restarts by its policy since a client started it."""
    address: str | None
    """Its IPv4 address in the network of its tenant, while it runs there."""
    address6: str | None
    """Its IPv6 address there, if the network has IPv6."""
    message: str
    """The error that ended it; empty if there was none."""
    created_ms: int
    """Time at which it was made."""
    started_ms: int | None
    """Time of its last start."""
    ended_ms: int | None
    """Time of its last end."""
    core: CoreFile | None = None
    """The core dump of its last end, if there was one."""

    @property
    def is_active(self) -> bool:
        """Whether the machine has a process, or will get one without a further request."""
        return self.state in _ACTIVE


@dataclass(frozen=True, slots=True)
class KvmReasons:
    """Exits of vCPUs that KVM counted, by reason. Not every kind of KVM counts every reason."""

    insn_emulation: int
    """Instructions that KVM emulated."""
    io_exits: int
    """Accesses to ports."""
    mmio_exits: int
    """Accesses to registers of devices in memory."""
    halt_exits: int
    """Halts of a vCPU."""
    irq_exits: int
    """Interrupts of the host."""
    signal_exits: int
    """Signals to the thread of a vCPU."""
    pf_taken: int
    """Page faults."""


@dataclass(frozen=True, slots=True)
class Stats:
    """Resources that a machine uses, or has used if it has ended. ``None``: not known."""

    cpu_ms: int | None
    """CPU time of the running VMM, milliseconds."""
    memory: int | None
    """Memory of the running VMM, with the guest's, bytes."""
    boot_ms: float | None
    """Milliseconds from the start until the program was entered, once it has ended."""
    run_ms: float | None
    """Milliseconds that the program ran, once it has ended."""
    exits: Exits | None
    """Exits of its vCPUs to the VMM."""
    kvm_exits: int | None
    """Exits of its vCPUs that KVM counted, also those that the VMM did not see."""
    kvm_reasons: KvmReasons | None
    """Their reasons. One exit may count for two reasons, or for none of these."""
    network: Traffic | None
    """Traffic of its network interface, if it has one."""
    volume_requests: int | None
    """Requests of the machine to its volumes."""
    exits_per_operation: float | None
    """Exits that KVM counted, without those for interrupts of the host, divided by the number of
    packets and requests to volumes. ``None`` if there were none."""


@dataclass(frozen=True, slots=True)
class NetworkLimits:
    """Limits of a network interface in each direction. 0: no limit."""

    bandwidth: int
    """Most bytes per second."""
    packets: int
    """Most packets per second."""


@dataclass(frozen=True, slots=True)
class MachineEvent:
    """A machine has a new state."""

    machine: str
    """Id of the machine."""
    state: str
    """The state, as of :class:`Machine`."""
    time_ms: int
    """Time of the change."""


@dataclass(frozen=True, slots=True)
class SnapshotEvent:
    """A snapshot has a new state."""

    snapshot: str
    """Id of the snapshot."""
    name: str | None
    """Its name, if it has one."""
    machine: str
    """Id of the machine that it was made of, which may be gone."""
    state: str
    """``created``, ``failed`` (it could not be made) or ``deleted``."""
    reason: str | None
    """Why it failed, or why the daemon deleted it without a request."""
    time_ms: int
    """Time of the change."""


@dataclass(frozen=True, slots=True)
class Missed:
    """Events were lost. The states of machines may be other ones than the events tell."""

    count: int | None
    """Number of events that the daemon dropped because the client read too slowly. ``None``: the
    connection was lost, and nothing tells how many events were."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of a machine."""

    id: str
    """Its id."""
    name: str | None
    """Its name, if it has one."""
    machine: str
    """Id of the machine that it was made of, which may be gone."""
    program: str
    """Id of the program."""
    memory: int
    """Memory of machines that continue it, bytes."""
    size: int
    """Bytes of its files on the disk."""
    created_ms: int
    """Time of its creation."""


@dataclass(frozen=True, slots=True)
class Volume:
    """A directory that outlives the machines that use it."""

    name: str
    """Its name."""
    size: int
    """Size limit, bytes."""
    inodes: int
    """Limit of files, directories and links."""
    created_ms: int
    """Time of its creation."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret, without its contents."""

    name: str
    """Its name."""
    created_ms: int
    """Time of its creation."""
    changed_ms: int
    """Time of the last change."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A webhook that waits for its receiver."""

    id: str
    """Its id, which is the header ``webhook-id`` of each attempt."""
    machine: str
    """Id of the machine or run that has ended."""
    url: str
    """The address."""
    attempts: int
    """Number of failed attempts."""
    error: str
    """The fault of the last attempt; empty before the first one."""
    created_ms: int
    """Time of the machine's end, milliseconds since 1970."""
    next_ms: int
    """Time of the next attempt."""


@dataclass(frozen=True, slots=True)
class Logs:
    """A part of an output of a machine or run."""

    start: int
    """Position of the first byte in the output. Older bytes may be gone."""
    data: bytes
    """The bytes, with times if they were requested."""

    @property
    def text(self) -> str:
        """The bytes as UTF-8. Bytes that are not UTF-8 become U+FFFD."""
        return self.data.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class ExecEnd:
    """The end of a command in a machine."""

    exit_code: int
    """The exit code; 128 + *n* if signal *n* killed the process, 127 if the program was not found,
    126 if it cannot be executed, 137 if the machine ended first, 125 for other failures."""
    message: str
    """Why there is no exit code of the program; empty if there is one."""


@dataclass(frozen=True, slots=True)
class ExecResult:
    """The result of a command in a machine."""

    exit_code: int
    """As of :class:`ExecEnd`."""
    message: str
    """As of :class:`ExecEnd`."""
    stdout: Output
    """Standard output: at most the newest MiB."""
    stderr: Output
    """Standard error, likewise."""


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits of a tenant, for all its machines and runs together."""

    weight: int
    """Weight of the tenant's share of the CPUs when tenants compete, 1 to 10000."""
    max_machines: int
    """Most machines and runs that run at once."""
    max_memory: int
    """Memory of the running machines and runs, bytes."""
    max_queued: int
    """Most machines and runs that wait for the scheduler."""
    max_storage: int
    """Storage, bytes: uploads, their trees and translations, volumes, and kept data of machines and
    runs."""
    max_inodes: int
    """Files, directories and links of this storage on the host."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant."""

    name: str
    """Its name."""
    quota: Quota
    """Its limits."""
    created_ms: int
    """Time of its creation."""


@dataclass(frozen=True, slots=True)
class Use:
    """A tenant's use of a resource."""

    resource: str
    """The resource: ``memory``, ``cpus``, ``runs``, ``connections``, ``ports``,
    ``port_connections``, ``storage``, ``inodes``, or ``translation``, which is CPU time since the
    start of the daemon."""
    unit: str
    """The unit of both numbers: ``bytes``, ``milliseconds``, or empty for a count."""
    used: int
    """The amount that the tenant uses."""
    limit: int | None
    """The tenant's limit at one time. ``None``: it has none."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key, without its secret."""

    id: str
    """Its id."""
    tenant: str
    """Name of its tenant."""
    scope: str
    """``read``, ``write`` or ``admin``."""
    label: str
    """Its label."""
    created_ms: int
    """Time of its creation."""


@dataclass(frozen=True, slots=True)
class NewKey:
    """A new API key."""

    id: str
    """Its id, with which it can be deleted."""
    tenant: str
    """Name of its tenant."""
    scope: str
    """``read``, ``write`` or ``admin``."""
    label: str
    """Its label."""
    created_ms: int
    """Time of its creation."""
    key: str = field(repr=False)
    """The key itself. The daemon does not show it again."""
