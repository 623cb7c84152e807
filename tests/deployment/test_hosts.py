"""docs/deployment.md as it is written, on seven hosts: network namespaces, with addresses and names
of their own, and a switch between them that is listened to."""

import os
import re
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
import yaml
from tests.deployment.test_init import NODES, blocks, devices_of, save_records

HOSTS = {name: number for number, name in enumerate(NODES, start=1)}
SERVERS = ("cloud", "edge-a", "edge-b")
LISTEN = """
import socket, sys
heard = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))
heard.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 26)
print("listening", flush=True)
with open(sys.argv[1], "wb") as file:
    while True:
        frame, (_, _, kind, *_) = heard.recvfrom(1 << 16)
        if kind != socket.PACKET_OUTGOING:  # each frame comes in at one port, and goes out again
            file.write(len(frame).to_bytes(4, "little") + frame)
            file.flush()
"""


def ip(*words: str, within: str | None = None) -> None:
    command = ["ip", *(["-n", within] if within else []), *words]
    subprocess.run(command, check=True, capture_output=True)


def may_make_hosts() -> bool:
    if shutil.which("ip") is None or os.geteuid() != 0:
        return False
    name = f"try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode == 0
    if made:
        subprocess.run(["ip", "netns", "del", name], check=True)
    return made


pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not may_make_hosts(), reason="network namespaces need root and ip(8)"),
]


def address(host: str) -> str:
    return f"10.91.0.{HOSTS[host]}"


@dataclass
class Hosts:
    """A folder and a network namespace a host, and what has been said on the switch."""

    folder: Path
    prefix: str
    started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def home(self, host: str) -> Path:
        return self.folder / host

    def run(self, host: str, command: str) -> str:
        """A command of the page, on a host; what it prints."""
        done = subprocess.run(self.on(host, command), **self.surroundings(host), text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, host: str, command: str) -> None:
        with (self.home(host) / "log").open("wb") as log:
            self.started[host] = subprocess.Popen(
                self.on(host, command), **self.surroundings(host) | {"stdout": log, "stderr": log}
            )

    def on(self, host: str, command: str) -> list[str]:
        return ["ip", "netns", "exec", f"{self.prefix}-{host}", "bash", "-c", f"exec {command}"]

    def surroundings(self, host: str) -> dict:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {
            "cwd": self.home(host).parent,
            "env": os.environ | {"PATH": path},
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    made = Hosts(tmp_path, f"m2fdp-{os.getpid()}")
    switch = f"{made.prefix}-switch"
    names = [f"{made.prefix}-{host}" for host in HOSTS]
    known = "".join(f"{address(host)} {host}.example\n" for host in SERVERS)
    try:
        ip("netns", "add", switch)
        ip("link", "add", "switch", "type", "bridge", within=switch)
        ip("link", "set", "switch", "up", within=switch)
        for host, name in zip(HOSTS, names, strict=True):
            made.home(host).mkdir()
            ip("netns", "add", name)
            files = Path("/etc/netns") / name  # what its programs see as /etc/hosts
            files.mkdir(parents=True)
            (files / "hosts").write_text(known)
            ip("link", "add", host, "type", "veth", "peer", "name", "wire", within=switch)
            ip("link", "set", "wire", "netns", name, within=switch)
            ip("link", "set", host, "master", "switch", "up", within=switch)
            ip("address", "add", f"{address(host)}/24", "dev", "wire", within=name)
            ip("link", "set", "wire", "up", within=name)
        listener = subprocess.Popen(
            ["ip", "netns", "exec", switch, sys.executable, "-c", LISTEN, tmp_path / "heard"],
            stdout=subprocess.PIPE,
        )
        assert listener.stdout is not None and listener.stdout.readline() == b"listening\n"
        made.started["switch"] = listener
        yield made
    finally:
        for process in made.started.values():
            process.kill()
            process.wait()
        for name in (switch, *names):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
            shutil.rmtree(Path("/etc/netns") / name, ignore_errors=True)


def deal_keys(hosts: Hosts, request: str, sign: str) -> None:
    """Each node's key is made on its host; only requests and certificates travel."""
    for host in HOSTS:
        hosts.run(host, request.replace("alice", host))
        own = hosts.home(host) / "keys"
        shutil.copy(own / f"{host}.csr", hosts.folder)
        hosts.run("cloud", sign.replace("alice", host))
        shutil.copy(hosts.folder / f"{host}.pem", own)


def test_a_federation_step_by_step(hosts):
    tree, init, _, check, starts, request, sign, *_ = blocks("A federation, step by step")
    (hosts.folder / "tree.yml").write_text(tree)
    told = hosts.run("cloud", f"{init.strip()} --no-keys")
    assert "edge-a adds noise" in told and "dave: epsilon 4" in told
    for host in HOSTS:
        handed_out = hosts.folder / "federation/nodes" / host
        shutil.copytree(handed_out, hosts.home(host), dirs_exist_ok=True)
    deal_keys(hosts, request.strip(), sign.strip())
    save_records(devices_of(tree), hosts.folder)
    assert "edge-a" in hosts.run("alice", check.strip())
    commands = dict(zip(HOSTS, starts.splitlines(), strict=True))
    # Of a unit and a compose file the commands; what they stand for here is a host's folder.
    unit = (hosts.home("alice") / "m2fdp.service").read_text()
    (of_unit,) = re.findall(r"^ExecStart=/opt/m2fdp/bin/(.*)$", unit, re.M)
    of_compose = yaml.safe_load((hosts.home("edge-a") / "compose.yml").read_text())
    commands["alice"] = within("alice", of_unit.replace("/var/lib/m2fdp/alice", "state/alice"))
    commands["edge-a"] = within("edge-a", of_compose["services"]["edge-a"]["command"])
    for host, command in commands.items():
        hosts.start(host, command)
    for host in HOSTS:
        log = hosts.home(host) / "log"
        assert hosts.started[host].wait(300) == 0, log.read_text()
    time.sleep(0.5)
    check_wire(hosts)


def within(host: str, command: str) -> str:
    return f"sh -c 'cd {host} && exec {command}'"


def check_wire(hosts: Hosts) -> None:
    """Who sends to whom, and that nothing of it can be read."""
    pairs, payload = heard(hosts.folder / "heard")
    allowed = {("cloud", "edge-a"), ("cloud", "edge-b"), ("edge-a", "alice"), ("edge-a", "bob")}
    allowed |= {("edge-b", "carol"), ("edge-b", "dave")}
    assert pairs <= allowed | {(two, one) for one, two in allowed}
    (file,) = (hosts.home("cloud") / "data/06_models").glob("*/model.pt")
    model = torch.cat([value.flatten() for value in torch.load(file).values()]).numpy()
    kept = [path.read_bytes() for host in HOSTS for path in hosts.home(host).glob("state/*/kept/*")]
    rounds = (hosts.home("cloud") / "log").read_text().count("round ")
    # Up and down, each round, on six links: all of it has passed the switch.
    assert len(kept) >= 6 and len(payload) > 12 * rounds * model.nbytes
    assert b"edge-a" in payload, "a name that TLS asks for is in clear, so the switch is heard"
    for secret in (model.astype("<f4").tobytes(), *kept):
        for start in range(0, len(secret) - 16, 64):
            assert secret[start : start + 16] not in payload
    plan = (hosts.home("cloud") / "plan.json").read_bytes()
    assert plan[200:240] not in payload


def heard(file: Path) -> tuple[set[tuple[str, str]], bytes]:
    """Pairs of hosts that have sent to each other over TCP, and all that was sent."""
    names = {address(host): host for host in HOSTS}
    pairs, payload, frames = set(), bytearray(), file.read_bytes()
    at = 0
    while at < len(frames):
        size = int.from_bytes(frames[at : at + 4], "little")
        frame, at = frames[at + 4 : at + 4 + size], at + 4 + size
        if frame[12:14] != b"\x08\x00" or frame[23] != 6:
            continue
        length, header = struct.unpack_from("!H", frame, 16)[0], 4 * (frame[14] & 15)
        source, target = (".".join(map(str, frame[start : start + 4])) for start in (26, 30))
        pairs.add((names[source], names[target]))
        offset = 14 + header
        payload += frame[offset + 4 * (frame[offset + 12] >> 4) : 14 + length]
    return pairs, bytes(payload)
