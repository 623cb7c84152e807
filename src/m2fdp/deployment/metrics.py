"""A node's numbers for Prometheus, and whether it is well, over HTTP."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from m2fdp.core.errors import InputError
from m2fdp.deployment.status import days_until, overdue

_LOOPBACK = "127.0.0.1"
# A counter or a gauge by name, what it is, and its value, or its values by `reason`.
Number = tuple[str, str, str, float | Mapping[str, float]]


def numbers(content: Mapping[str, Any]) -> list[Number]:
    """The numbers of a node's status (`m2fdp.deployment.status.Status.content`)."""
    children, ends = content["children"].values(), content["certificate_ends"]
    # fmt: off
    known: tuple[tuple[str, str, str, float | Mapping[str, float] | None], ...] = (
        ("rounds", "Counter", "Rounds since the node was started.", content["rounds_done"]),
        ("round_seconds", "Counter", "What these rounds have taken.", content["seconds"]),
        ("refusals", "Counter", "Refusals, the node's and its children's.", content["refusals"]),
        ("round", "Gauge", "The round that it is in.", content["round"]),
        ("children_present", "Gauge", "Children there.", sum(each["there"] for each in children)),
        ("handshakes_failed", "Gauge", "Connections without a stream.",
            content["handshakes_failed"]),
        ("epsilon", "Gauge", "Epsilon spent, in all.", content["epsilon"]),
        ("budget", "Gauge", "Epsilon that may be spent.", content["budget"]),
        ("certificate_days", "Gauge", "Days that its certificates have left.",
            ends and days_until(ends)),
        ("healthy", "Gauge", "Whether nothing is overdue.", float(overdue(content) is None)),
    )
    # fmt: on
    return [
        (f"m2fdp_{name}", kind, about, value)
        for name, kind, about, value in known
        if value is not None
    ]


class Collector:
    """What Prometheus' client asks."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._content = content

    def collect(self) -> Iterator[Any]:
        from prometheus_client import core

        for name, kind, about, value in numbers(self._content):
            make = getattr(core, f"{kind}MetricFamily")
            if not isinstance(value, Mapping):
                yield make(name, about, value=value)
                continue
            family = make(name, about, labels=["reason"])
            for reason, count in list(value.items()):
                family.add_metric([reason], count)
            yield family


@contextmanager
def served(content: Mapping[str, Any], at: str | None) -> Iterator[None]:
    """Within the block `/metrics` and `/health` are at PORT of this host alone, or at HOST:PORT;
    nowhere, if that is None."""
    if at is None:
        yield
        return
    host, _, port = at.rpartition(":")
    if not port.isdigit() or not int(port) < 2**16:
        raise InputError("--metrics", at, "valid: PORT, or HOST:PORT")
    try:
        import prometheus_client as client  # of the extra
    except ImportError:
        remedy = "needs prometheus-client: pip install 'm2fdp[metrics]'"
        raise InputError("--metrics", at, remedy) from None
    registry = client.CollectorRegistry()
    registry.register(Collector(content))

    class Pages(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:  # noqa: N802 (the library's name)
            code, page = 404, b"valid: /metrics, /health\n"
            if self.path == "/metrics":
                code, page = 200, client.generate_latest(registry)
            elif self.path == "/health":
                wrong = overdue(content)
                code, page = (503 if wrong else 200), f"{wrong or 'well'}\n".encode()
            self.send_response(code)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: Any) -> None:
            """Who asks is no event of the run."""

    try:
        server = ThreadingHTTPServer((host or _LOOPBACK, int(port)), Pages)
    except OSError:
        problem = "can't be listened at: it is in use, or not this host's"
        raise InputError("--metrics", at, problem) from None
    with server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()
