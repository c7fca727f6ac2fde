"""A proxy in front of a daemon's socket that breaks connections."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path
from types import TracebackType


class BreakingProxy:
    """Passes requests on, and closes the first connections when the daemon answers."""

    def __init__(self, path: Path, upstream: Path, breaks: int) -> None:
        self.host = f"unix://{path}"
        self.answers = 0
        """The number of connections on which the daemon has answered."""
        self._upstream = upstream
        self._breaks = breaks
        self._clients: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def __enter__(self) -> BreakingProxy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # The thread waits in `accept`, which this ends.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def cut(self) -> None:
        """Break all connections."""
        for client in self._clients:
            # Some are closed.
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._clients.append(client)
            threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as daemon:
            daemon.connect(str(self._upstream))
            threading.Thread(target=_copy, args=(client, daemon), daemon=True).start()
            answer = daemon.recv(1 << 16)
            self.answers += 1
            if self._breaks > 0:
                self._breaks -= 1
                client.shutdown(socket.SHUT_RDWR)
                return
            client.sendall(answer)
            _copy(daemon, client)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        # One of the ends is closed.
        return
