"""Snapshots whose clones run in this process."""

from __future__ import annotations

from os import PathLike
from typing import Final, Literal

from hartline_host import errors
from hartline_host._library import check, ffi, lib
from hartline_host._values import Handle, to_bytes, to_milliseconds

Baseline = Literal["auto", "off", "whole", "only"]
"""The code that the baseline translator makes, as ``hartline run --baseline``.

It translates faster than LLVM, to slower code. ``auto``: code that a program reaches before LLVM
has translated it. ``off``: none. ``whole``: whole files before they are executed. ``only``: whole
files, and LLVM translates nothing.
"""

_BASELINES: Final[dict[str, int]] = {
    "auto": lib.HARTLINE_BASELINE_AUTO,
    "off": lib.HARTLINE_BASELINE_OFF,
    "whole": lib.HARTLINE_BASELINE_WHOLE,
    "only": lib.HARTLINE_BASELINE_ONLY,
}


class Template(Handle):
    """A snapshot of a program, which ``hartline run --snapshot`` has written.

    :class:`~hartline_host.WarmClone` makes machines of it. Any thread may use it.
    """

    def __init__(
        self,
        snapshot: str | PathLike[str],
        *,
        cache: str | PathLike[str] | None = None,
        start_limit: float | None = 60.0,
        baseline: Baseline = "auto",
    ) -> None:
        """Load a snapshot, and check it.

        :param snapshot: its directory. Its files must not be changed while there is the template or
            a clone of it.
        :param cache: the directory of translations; without one, that of ``hartline run``.
        :param start_limit: seconds until a clone is ready; None: no limit.
        :param baseline: the code that the baseline translator makes.
        :raises LoadError: the snapshot is missing, damaged or cannot be a template.
        """
        super().__init__()
        if baseline not in _BASELINES:
            raise errors.ArgumentError(f"baseline: {baseline!r}: must be one of {list(_BASELINES)}")
        folder = ffi.new("char[]", to_bytes(cache)) if cache else ffi.NULL
        options = ffi.new("struct hartline_template_options *")
        options.size = ffi.sizeof("struct hartline_template_options")
        options.cache = folder
        options.start_limit_ms = to_milliseconds(start_limit)
        options.baseline = _BASELINES[baseline]
        handle = ffi.new("hartline_template *")
        check(lib.hartline_template_load(to_bytes(snapshot), options, handle))
        self._set(handle[0])

    def close(self) -> None:
        """Free the snapshot. Its clones stay. Once is enough, and more do nothing."""
        super().close()

    def _end(self, handle: int) -> None:
        lib.hartline_template_free(handle)
