"""A node's numbers for Prometheus, and whether it is well, over HTTP."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from m2fdp.core.errors import InputError
from m2fdp.deployment.status import days_until, overdue

_LOOPBACK = "127.0.0.1"
# Its name, what it is, and its value, or its values by `reason`; what ends in _total only grows.
Number = tuple[str, str, float | Mapping[str, float] | None]


def numbers(content: Mapping[str, Any]) -> list[Number]:
    """The numbers of a node's status (`m2fdp.deployment.status.Status.content`)."""
    there = sum(each["there"] for each in content["children"].values())
    ends, failed = content["certificate_ends"], content["handshakes_failed"]
    refusals = dict(content["refusals"])
    known: list[Number] = [
        ("m2fdp_rounds_total", "Rounds since the node was started.", content["rounds_done"]),
        ("m2fdp_round_seconds_total", "What these rounds have taken.", content["seconds"]),
        ("m2fdp_refusals_total", "Refusals, its own and its children's.", refusals),
        ("m2fdp_round", "The round that it is in.", content["round"]),
        ("m2fdp_children_present", "Children that are there.", there),
        ("m2fdp_handshakes_failed", "Connections that have come to no stream.", failed),
        ("m2fdp_epsilon", "Epsilon spent, in all.", content["epsilon"]),
        ("m2fdp_budget", "Epsilon that may be spent.", content["budget"]),
        ("m2fdp_certificate_days", "Days that certificates have left.", ends and days_until(ends)),
        ("m2fdp_healthy", "Whether nothing is overdue.", float(overdue(content) is None)),
    ]
    return [number for number in known if number[-1] is not None]


def _families(content: Mapping[str, Any]) -> Iterator[Any]:
    """The numbers as Prometheus' client has them."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for name, about, value in numbers(content):
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        if not isinstance(value, Mapping):
            yield kind(name, about, value=value)
            continue
        family = kind(name, about, labels=["reason"])
        for reason, each in value.items():
            family.add_metric([reason], each)
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

    class Numbers(client.registry.Collector):
        def collect(self) -> Iterator[client.Metric]:
            return _families(content)

    registry = client.CollectorRegistry()
    registry.register(Numbers())

    class Pages(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:  # noqa: N802 (the library's name)
            wrong, page = overdue(content), b"valid: /metrics, /health\n"
            if self.path == "/metrics":
                page = client.generate_latest(registry)
            elif self.path == "/health":
                page = f"{wrong or 'well'}\n".encode()
            self.send_response(503 if wrong and self.path == "/health" else 200)
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
