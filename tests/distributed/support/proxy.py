"""A TCP proxy on loopback that can hold back data, as a network partition does."""

import contextlib
import socket
import threading


class Proxy:
    """Forwards connections to a port until it is stopped."""

    def __init__(self, port: int):
        self._target = port
        self._passing = threading.Event()
        self._passing.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self):
        """Holds everything back from now on; connections stay open."""
        self._passing.clear()

    def release(self):
        """Forwards everything again, including the data held back."""
        self._passing.set()

    def stop(self):
        self._passing.set()
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                inner, _ = self._listener.accept()
                self._passing.wait()
                try:
                    outer = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    inner.close()
                    continue
                self._sockets += [inner, outer]
                for pair in ((inner, outer), (outer, inner)):
                    threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self._passing.wait()
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        source.close()
