"""A way to the API server that a test can cut."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path


class Cuttable:
    """Passes bytes on to a port, until it cuts everything there is; while it is `off` it lets nobody through."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._pairs: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.off = False
        threading.Thread(target=self._accept, daemon=True).start()

    def kubeconfig(self, direct: Path, folder: Path) -> Path:
        """The same access on this way."""
        made = folder / f"through-{direct.name}"
        made.write_text(direct.read_text().replace(f":{self._port}", f":{self.port}"))
        return made

    def cut(self, *, off: bool = False) -> None:
        self.off = off
        pairs, self._pairs = self._pairs, []
        for each in pairs:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def close(self) -> None:
        self._listener.close()
        self.cut(off=True)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._connect(near)

    def _connect(self, near: socket.socket) -> None:
        try:
            if self.off:
                raise ConnectionRefusedError
            far = socket.create_connection(("127.0.0.1", self._port))
        except OSError:
            near.close()
            return
        self._pairs += [near, far]
        if self.off:
            self.cut(off=True)
        for ends in ((near, far), (far, near)):
            threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
