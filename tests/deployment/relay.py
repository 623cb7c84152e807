"""A line between two nodes that can be listened to, and cut; addresses; and patience."""

import socket
import threading
import time
from contextlib import suppress


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


def wait_for(what, seconds=20, why=lambda: "in vain") -> None:
    """Until something is so, soon."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, why()
        time.sleep(0.02)


def told_by(lines):
    """Takes up lines that say something, but for who comes and goes."""

    def tell(line):
        if line and getattr(line, "event", None) != "child":
            lines.append(line)

    return tell


class Relay:
    """Between a child and its parent, for who listens on the line."""

    def __init__(self, address: str, port: int = 0) -> None:
        host, target = address.split(":")
        self.target, self.heard = (host, int(target)), bytearray()
        self.lines: list[socket.socket] = []
        self.listener = socket.create_server(("127.0.0.1", port))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self.target)
            except OSError:  # nobody is there yet
                near.close()
                continue
            self.lines += near, far
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self.pass_on, args=(one, other), daemon=True).start()

    def cut(self):
        """End what is connected now; who calls again is put through again."""
        for line in self.lines:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        self.lines.clear()

    def pass_on(self, one, other):
        try:
            while content := one.recv(65536):
                self.heard += content
                other.sendall(content)
        except OSError:
            pass
        other.close()
