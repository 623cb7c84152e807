"""H's algorithms. Zones are the lowest servers, its super-nodes, with their devices."""

from dataclasses import dataclass

import numpy as np

from m2fdp.core.algorithms import Algorithm, Given, Plan
from m2fdp.core.algorithms.hfl_dp import HFL_DP
from m2fdp.core.errors import BLOCK, InputError
from m2fdp.core.privacy.sight import FINAL, NOTHING, rows
from m2fdp.core.streams import generator
from m2fdp.core.topology.network import Network, no_noise, noise_plan
from m2fdp.core.topology.tree import Tree
from m2fdp.core.topology.trust import all_but_the_cloud, all_trusted
from m2fdp.zones.config import ZonesConfig


@dataclass(frozen=True)
class ZoneAlgorithm(Algorithm):
    """One of H's algorithms: a run tells what the observers of its zones learn. A zoned one reads
    the configuration's `zones`."""

    zoned: bool = False


def _cdp(given: Given) -> Plan:
    """Everybody is trusted, and the cloud alone adds noise: the promise binds those who receive the
    global model."""
    everybody = all_trusted(given.tree)
    network = Network(given.tree, everybody, noise_plan(given.tree, everybody))
    return Plan(network, given.schedule, private=True, distrusts=_beyond_the_cloud())


def _hdp(given: Given) -> Plan:
    """Every zone trusts its super-node, which adds the noise. Servers between super-nodes and
    cloud, of which H has none, are trusted and add none."""
    tree = given.tree
    if tree.depth < 2:
        problem = "needs servers between cloud and devices, H's super-nodes"
        raise InputError("algorithm", "hdp", problem)
    noise = list(no_noise(tree))
    noise[tree.depth - 1] = np.ones(tree.n_nodes(tree.depth - 1))
    network = Network(tree, all_but_the_cloud(tree), tuple(noise))
    return Plan(network, given.schedule, private=True)


def _hdp_mixed(given: Given) -> Plan:
    """Zones differ in who adds noise, and whom a device trusts follows: nobody where all devices of
    its zone add some; else its super-node, and where that adds none, the cloud."""
    tree, zones = given.tree, given.config.zones
    if tree.depth != 2:
        problem = f"needs a tree of two tiers, zones below the cloud, not of {tree.depth}"
        raise InputError("algorithm", "hdp_mixed", problem)
    devices, servers = draw_adders(tree, zones, given.seed)
    all_do = np.bincount(tree.parents[1], weights=~devices) == 0
    exposed = np.flatnonzero(~all_do & ~servers)
    if exposed.size and not zones.cloud_noise:
        problem = (
            f"leaves {exposed.size} zones, such as {tree.names[1][exposed[0]]}, with devices that "
            "nobody adds noise for; raise device_noise or server_noise, or set cloud_noise: true"
        )
        raise InputError("zones", BLOCK, problem)
    cloud = np.array([zones.cloud_noise])
    noise = tuple(adds.astype(np.float64) for adds in (cloud, servers, devices))
    return Plan(
        Network(tree, (cloud, ~all_do), noise),
        given.schedule,
        private=True,
        distrusts=_beyond_the_cloud() if zones.cloud_noise else frozenset(),
    )


def _beyond_the_cloud() -> frozenset[str]:
    """Observers that only broadcasts reach: a trusted cloud's noise protects from them."""
    told = {kind: row for kind, row in rows().items() if row.is_device or row.handed == FINAL}
    return frozenset(kind for kind, row in told.items() if row.up == NOTHING)


def draw_adders(tree: Tree, config: ZonesConfig, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The devices and the super-nodes that add noise: bool (N_L,) and (N_{L-1},).

    The seed draws one order of the zones. Devices add noise in the first zones, super-nodes in the
    zones that follow. The shares say how many (half up, of both together), so for one seed the sets
    are nested in each share. Where the share is of every zone's devices, each zone has an order of
    its own, and super-nodes come from the first zone on.
    """
    lowest = tree.depth - 1
    n_zones, parents = tree.n_nodes(lowest), tree.parents[-1]
    order = generator(seed, "zones").permutation(n_zones)
    servers = np.zeros(n_zones, dtype=bool)
    if config.device_noise_of == "devices":
        devices = np.zeros(tree.n_devices, dtype=bool)
        for zone in range(n_zones):
            members = np.flatnonzero(parents == zone)
            chosen = generator(seed, "zone", zone).permutation(members)
            devices[chosen[: _half_up(config.device_noise * len(members))]] = True
        servers[order[: _half_up(config.server_noise * n_zones)]] = True
        with_noise = np.bincount(parents, weights=devices) > 0
    else:
        total = config.device_noise + config.server_noise
        if not total <= 1 + 1e-9:
            problem = (
                f"and zones.device_noise = {config.device_noise:g} are more than all zones "
                "together; use shares that sum to 1 at most, or device_noise_of: devices"
            )
            raise InputError("zones.server_noise", config.server_noise, problem)
        first = _half_up(config.device_noise * n_zones)
        with_noise = np.zeros(n_zones, dtype=bool)
        with_noise[order[:first]] = True
        devices = with_noise[parents]
        servers[order[first : _half_up(total * n_zones)]] = True
    if config.both_layers:
        servers |= with_noise
    return devices, servers


def _half_up(number: float) -> int:
    return int(np.floor(number + 0.5 + 1e-9))


# No server is trusted, so every device adds noise: HFL-DP by H's name (H Sec. V, C1).
LDP = ZoneAlgorithm("ldp", "LDP", "baseline", HFL_DP.plan)
HDP = ZoneAlgorithm("hdp", "HDP", "method", _hdp)  # C2
CDP = ZoneAlgorithm("cdp", "CDP", "baseline", _cdp)  # C4
# C3 and C5 to C7.
HDP_MIXED = ZoneAlgorithm("hdp_mixed", "HDP, mixed", "method", _hdp_mixed, zoned=True)
