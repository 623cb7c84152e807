"""Zones (H Sec. III): the lowest servers, H's super-nodes, with their devices; who adds noise."""

from __future__ import annotations

import numpy as np

from m2fdp.core.errors import InputError
from m2fdp.core.streams import generator
from m2fdp.core.topology.tree import Tree
from m2fdp.zones.config import ZonesConfig


def draw_adders(tree: Tree, config: ZonesConfig, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The devices and the super-nodes that add noise: bool (N_L,) and (N_{L-1},).

    Zones are put in one order, drawn with the seed. The first of them are those whose devices add
    noise, those whose super-nodes do follow, each as many as their share says (half up, of both
    shares together); so for one seed the sets are nested in each share. As a share of the devices
    of every zone, each zone has an order of its own, and super-nodes come from the first zone on.

    Raises:
        InputError: the two shares of zones are more than 1 together.
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
            raise InputError(
                "zones.server_noise",
                config.server_noise,
                f"and zones.device_noise = {config.device_noise:g} are more than all zones "
                "together; use shares that sum to 1 at most, or device_noise_of: devices",
            )
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
