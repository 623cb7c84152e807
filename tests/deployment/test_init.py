"""`m2fdp init`: docs/deployment.md typed as it stands, by real processes; and bad files."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import yaml
from sklearn.datasets import load_digits
from tests.deployment.relay import free_address
from tests.deployment.test_commands import m2fdp

PAGE = Path(__file__).parents[2] / "docs/deployment.md"
NODES = ("cloud", "edge-a", "edge-b", "alice", "bob", "carol", "dave")
# What copies to a host is a program of its own: here hosts are folders.
SCP = '#!/bin/sh\ncp -r "$2" "$HOSTS/"\n'


def blocks(heading: str) -> list[str]:
    """What stands between fences in a section of the page."""
    page = PAGE.read_text()
    section = page[page.index(f"## {heading}") :]
    section = section[: section.index("\n## ", 3)]
    return re.findall(r"```\w*\n(.*?)```", section, re.S)


def on_loopback(tree: str) -> str:
    return re.sub(r"[\w-]+\.example:7001", lambda found: free_address(), tree)


def devices_of(tree: str) -> dict[str, int]:
    """Devices of the page's tree, with their numbers of records."""
    below = yaml.safe_load(tree)["tree"]["cloud"].values()
    return {name: records for devices in below for name, records in devices.items()}


def save_records(devices: Mapping[str, int], home: Path) -> None:
    digits = load_digits()
    images, labels, start = (digits.images * 15).astype(np.uint8), digits.target, 0
    for name, file, size in (
        *((name, "own.npz", size) for name, size in devices.items()),
        ("cloud", "held-out.npz", 300),
    ):
        rows = slice(start, start + size)
        np.savez(home / name / file, x=images[rows], y=labels[rows])
        start += size


def programs(folder: Path) -> dict[str, str]:
    """Surroundings in which the page's commands are there."""
    folder.mkdir()
    m2fdp = f'#!/bin/sh\nexec {sys.executable} -m m2fdp.deployment "$@"\n'
    for name, text in (("m2fdp", m2fdp), ("scp", SCP)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "HOSTS": str(folder.parent)}


@contextmanager
def started(commands: list[str], folder: Path, env: dict[str, str]) -> Iterator[dict]:
    """Processes, by the first word of their commands, with their logs beside."""
    made = {}
    try:
        for command in commands:
            name = command.split("/")[0]
            with (folder / f"{name}.log").open("ab") as log:
                words = ["sh", "-c", f"exec {command}"]
                made[name] = subprocess.Popen(words, cwd=folder, env=env, stdout=log, stderr=log)
        yield made
    finally:
        for process in made.values():
            if process.poll() is None:
                process.kill()
                process.wait()


def test_the_page_is_a_federation_in_twelve_commands(tmp_path):
    tree, init, copy, check, starts, *_ = blocks("A federation, step by step")
    commands = [*init.splitlines(), *copy.splitlines(), *check.splitlines(), *starts.splitlines()]
    assert len(commands) == 10 and [one.split("/")[0] for one in commands[3:]] == list(NODES)
    env = programs(tmp_path / "bin")
    (tmp_path / "tree.yml").write_text(on_loopback(tree).replace("rounds: 20", "rounds: 3"))

    def run(command: str) -> str:
        done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=env, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    assert "dave: epsilon 4\n" in run(commands[0])
    run(commands[1])
    save_records(devices_of(tree), tmp_path)
    assert "un-noised vectors reach: edge-a" in run(commands[2])
    with started(commands[3:], tmp_path, env) as processes:
        for name, process in processes.items():
            log = tmp_path / f"{name}.log"
            assert process.wait(120) == 0 and "the run is over: 3 rounds" in log.read_text()
    assert list((tmp_path / "cloud/data/06_models").glob("*/model.pt"))


def test_what_a_node_is_handed(tmp_path):
    (tmp_path / "tree.yml").write_text(blocks("A federation, step by step")[0])
    m2fdp("init", tmp_path / "tree.yml", "-o", tmp_path / "out", "--no-keys")
    nodes = tmp_path / "out/nodes"
    assert {folder.name for folder in nodes.iterdir()} == set(NODES)
    for name in NODES:
        own = nodes / name
        assert [file.name for file in (own / "keys").iterdir()] == ["authority.pem"]
        service = (own / "m2fdp.service").read_text()
        assert "SuccessExitStatus=143" in service and "ReadWritePaths" not in service
        (of_unit,) = re.findall(r"^ExecStart=/opt/m2fdp/bin/m2fdp (.*)$", service, re.M)
        ((_, composed),) = yaml.safe_load((own / "compose.yml").read_text())["services"].items()
        verb = "serve" if name in ("cloud", "edge-a", "edge-b") else "join"
        for command in (of_unit, composed["command"].removeprefix("m2fdp ")):
            assert command.startswith(f"{verb} plan.json --as {name} --keys keys")
            assert ("--budget" in command) is (verb == "join")
            assert ("--trusts edge-a" in command) is (name in ("alice", "bob"))
        assert composed["ports"] == (["7001:7001"] if verb == "serve" else [])
    assert "is there; name another" in m2fdp("init", "x.yml", "-o", tmp_path / "out", code=2)


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        ("alice: 240", "alice: many", "tree.cloud.edge-a.alice = 'many': valid: names of children"),
        ("alice: 240", "alice: 0", "tree.cloud.edge-a.alice = 0: valid: names of children"),
        ("alice: 240", "dave: 240", "has two edges from above, edge-a and edge-b"),
        ("alice: 240", "a b: 240", "is no name of a certificate; valid: letters"),
        ("alice: 240", "authority: 240", "'authority': is no name of a certificate"),
        ("{alice: 240, bob: 230}", "{}", "tree.cloud.edge-a = {}: valid: names of children"),
        ("  cloud:\n", "  other: {x: {y: 1}}\n  cloud:\n", "valid: one cloud, and its children"),
        ("edge-b: \"", "edge-c: \"", "servers = 'edge-b': has no HOST:PORT; the tree's are"),
        ("edge-b.example:7001", "edge-b.example", "servers.edge-b = 'edge-b.example': is no"),
        ("[1, 8, 8]", "[8, 8]", "shape: [C, H, W]"),
        ("classes: 10\n", "", "are the keys; valid: servers, devices, shape, classes"),
        ("classes: 10", "clases: 10", "clases = 10: unknown key; valid: tree, servers"),
        ("training.rounds", "training.round", "training.round = 20: unknown key"),
        ("training.rounds: 20", "topology.fanouts: [2, 3]", "topology.fanouts = [2, 3]"),
        ("privacy.epsilon: 4", "training.participation: 0.5", "training.participation = 0.5"),
    ],
)  # fmt: skip
def test_a_bad_tree_ends_in_one_line(tmp_path, was, now, words):
    tree = blocks("A federation, step by step")[0]
    assert was in tree
    (tmp_path / "tree.yml").write_text(tree.replace(was, now))
    told = m2fdp("init", tmp_path / "tree.yml", "-o", tmp_path / "out", code=2)
    assert words in told and "tree.yml: " in told
    assert not (tmp_path / "out").exists()
