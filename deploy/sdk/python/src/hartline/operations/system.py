"""The daemon itself."""

from __future__ import annotations

from .._decode import decode
from .._plans import Plan, check, fetch, fetch_all, get, parse, query
from ..models import Identity, Readiness, Sample, Version

UNAVAILABLE = 503
"""The status of :func:`readiness` if the daemon cannot run programs, and of other failures."""


def version() -> Plan[Version]:
    """Return the version of the daemon. This needs no key.

    Raises:
        HartlineError: There is no answer.

    """
    return fetch(Version, get("/version"))


def check_health() -> Plan[None]:
    """Check that the daemon answers. This needs no key.

    Raises:
        HartlineError: It does not.

    """
    check((yield get("/healthz")))


def readiness() -> Plan[Readiness]:
    """Return whether the daemon can run programs.

    This needs a key, unless the daemon's configuration has ``public_health``.

    Raises:
        HartlineError: There is no answer, or another error. That the daemon is not ready is no
            error.

    """
    answer = yield get("/readyz")
    # Errors have the type application/problem+json.
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if not (answer.status == UNAVAILABLE and kind == "application/json"):
        check(answer)
    return decode(Readiness, parse(answer.body), "Readiness")


def identity() -> Plan[Identity]:
    """Return the tenant and the rights of the client's key.

    Raises:
        AuthenticationError: There is no valid key.
        HartlineError: There is no answer, or another error.

    """
    return fetch(Identity, get("/v1/identity"))


def history(*, after_ms: int = 0, tenant: str | None = None) -> Plan[list[Sample]]:
    """Return figures of the last hour, a sample for each ten seconds, the oldest first.

    The samples are in the daemon's memory: they begin with its start.

    Args:
        after_ms: Only samples after this time, milliseconds since 1970.
        tenant: Only figures of this tenant. Without it, a key of the scope ``admin`` gets the sums
            of all tenants, and another key the figures of its own tenant.

    Raises:
        ForbiddenError: It is another tenant, and the key has another scope than ``admin``.
        NotFoundError: There is no such tenant.
        HartlineError: There is no answer, or another error.

    """
    return fetch_all(Sample, query("/v1/history", after_ms=after_ms, tenant=tenant))


def metrics() -> Plan[str]:
    """Return the daemon's metrics, in the format OpenMetrics of Prometheus.

    This needs a key of the scope ``admin``. If the daemon's configuration has ``public_health``,
    other clients get the metrics without figures of single tenants.

    Raises:
        ForbiddenError: The key has another scope.
        HartlineError: There is no answer, or another error.

    """
    return check((yield get("/metrics"))).body.decode(errors="replace")
