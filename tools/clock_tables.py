"""D's Tables 1, 2, 4 and 11, its Fig. 3 and its rates' two readings, from the clock alone:
`python -m tools.clock_tables FOLDER`.

Every table names the model whose times it shows. D's own tables are of D's models, clients and
profiles; speeds, scaling, unit, noise, server and labels are the configured clock's.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from m2fdp import load_config
from m2fdp.assignments import read_assignments
from m2fdp.core.config import Config
from m2fdp.tiers import scheduler
from m2fdp.tiers.clock import (
    Clients,
    ModuleCosts,
    clients_of,
    fedavg_costs,
    resnet_costs,
    round_times,
    tier_costs,
)
from m2fdp.tiers.config import ClockConfig, TieringConfig
from m2fdp.tiers.plan import (
    BASELINES,
    UNITS,
    TierPlan,
    World,
    draw_world,
    plan_tiers,
    seconds_of,
)
from m2fdp.tiers.scheduler import TABLE_2_CLIENT, TABLE_2_SERVER, TABLE_TIERS
from m2fdp.tiers.ways import DTFL

_MEGA = 1e6

# D Sec. 4.1: ten clients share CIFAR-10's 50,000 training records.
CLIENTS, RECORDS, ROUNDS = 10, 50_000, 150
# CPUs and link rate. D prints 1 CPU for the second of case 2, whose computation in Table 1 is that
# of 0.1 CPUs: 1.8 times case 1's, whose slowest has 0.2.
PROFILES = [[4.0, 100.0], [2.0, 30.0], [1.0, 30.0], [0.2, 30.0], [0.1, 10.0]]
CASES = {1: [[2.0, 30.0], [1.0, 30.0], [0.2, 30.0]], 2: [[4.0, 100.0], [0.1, 10.0]]}
MODELS = ("resnet56", "resnet110")

# Table 1: ResNet-110, all clients in one of six tiers, seconds to 80 % on CIFAR-10.
TABLE_1_MODEL = "resnet110"
TABLE_1_TIERS = (1, 2, 3, 4, 5, 6, 0)  # 0 is FedAvg
TABLE_1_COMPUTATION = {
    1: (4622, 8106, 9982, 10681, 11722, 12250, 13396),
    2: (8384, 14634, 17993, 19027, 21428, 22344, 24428),
}
TABLE_1_COMMUNICATION = {
    1: (5911, 5995, 2187, 2189, 1018, 908, 16),
    2: (17754, 18090, 6720, 6762, 2941, 2653, 43),
}
# Table 3: seconds to 80 % on CIFAR-10, IID, of both models.
TABLE_3 = {
    "dtfl": (2750, 4816),
    "fedavg": (13157, 24471),
    "splitfed": (35877, 67265),
    "fedgkt": (25458, 39676),
}

# Table 4: ResNet-110, seconds to the target by the number of clients; a tenth takes part.
TABLE_4_MODEL = "resnet110"
TABLE_4_SHARE = 0.1
TABLE_4 = {
    20: {"dtfl": 1877, "fedavg": 7950, "splitfed": 21350, "fedgkt": 14595},
    50: {"dtfl": 2547, "fedavg": 10435, "splitfed": 29026, "fedgkt": 17872},
    100: {"dtfl": 3102, "fedavg": 14032, "splitfed": 36449, "fedgkt": 24438},
    200: {"dtfl": 3594, "fedavg": 16060, "splitfed": 43942, "fedgkt": 27632},
}

# Fig. 3: total time over the number of tiers; profiles switch every 20 rounds.
FIGURE_3_MODEL = "resnet110"
FIGURE_3_SWITCH_EVERY = 20
MOST_TIERS = 7

# D's clients hold equally many.
_RECORDS = RECORDS / CLIENTS


def units_table(config: Config) -> pd.DataFrame:
    """A round of D's ten clients at the start, by what a rate counts, without noise.

    Returns:
        One row a model, unit and way to train, with its seconds over FedAvg's, D's of a whole run
        (Table 3) and the rounds that D's over ours imply: `dtfl`, the same with a tier of the whole
        model, with a server that serves one client at a time, FedAvg, SplitFed and FedGKT.
    """
    rows = []
    for place, model in enumerate(MODELS):
        for unit in UNITS:
            clock = _of_d(config.clock, model, rate_unit=unit, server="unlimited")
            costs = resnet_costs(clock.depth, clock.width)
            # Two clients of each profile.
            profiles = np.arange(CLIENTS) * len(clock.profiles) // CLIENTS
            clients = clients_of(clock, np.full(CLIENTS, _RECORDS), profiles)
            alone = np.ones((1, CLIENTS), dtype=bool)
            world = World(clients.records, profiles[None], alone * 1.0, alone)
            ways = {
                "dtfl": _dtfl_seconds(costs, clients, clock),
                "dtfl, whole_model": _dtfl_seconds(costs, clients, clock, whole_model=True),
                "dtfl, shared server": _dtfl_seconds(costs, clients, _with(clock, server="shared")),
            }
            for each in BASELINES:
                (ways[each.name],) = seconds_of(each, config.tiering, clock, costs, world)
            for way, seconds in ways.items():
                total = TABLE_3[way][place] if way in TABLE_3 else nan
                rows.append(
                    {
                        "model": model,
                        "rate_unit": unit,
                        "algorithm": way,
                        "round_s": seconds,
                        "over_fedavg": seconds / ways["fedavg"],
                        "printed_total_s": total,
                        "implied_rounds": total / seconds,
                    }
                )
    return pd.DataFrame(rows)


def table_1(config: Config) -> pd.DataFrame:
    """Every client in one tier of six, or FedAvg, beside D's seconds to 80 %.

    Returns:
        One row a unit, case and tier (0 = FedAvg): the slowest client's seconds of a round, D's
        of the whole run, and the rounds that D's over ours imply. D's FedAvg counts one way.
    """
    rows = []
    for unit in UNITS:
        for case, profiles in CASES.items():
            slowest = profiles[-1:]
            clock = _of_d(config.clock, TABLE_1_MODEL, rate_unit=unit, profiles=slowest)
            costs = resnet_costs(clock.depth, clock.width)
            tiers = tier_costs(costs, TABLE_TIERS)
            client = clients_of(clock, np.array([_RECORDS]), np.array([0]))
            split, whole = (
                round_times(each, client, clock) for each in (tiers, fedavg_costs(costs))
            )
            of_d = TABLE_1_COMPUTATION[case], TABLE_1_COMMUNICATION[case]
            for tier, computed, sent in zip(TABLE_1_TIERS, *of_d, strict=True):
                times, at = (split, (0, tier - 1)) if tier else (whole, (0, 0))
                computation = max(times.client[at], times.server[at])
                communication = times.communication[at]
                counted = communication if tier else communication / 2
                rows.append(
                    {
                        "model": clock.model,
                        "rate_unit": unit,
                        "case": case,
                        "tier": tier,
                        "computation_s": computation,
                        "communication_s": communication,
                        "round_s": computation + communication,
                        "printed_computation_s": computed,
                        "printed_communication_s": sent,
                        "printed_total_s": computed + sent,
                        "rounds_by_computation": computed / computation,
                        "rounds_by_communication": sent / counted,
                    }
                )
    return pd.DataFrame(rows)


def table_2(config: Config) -> pd.DataFrame:
    """Times by tier over tier 1's: D's measured ones, and FLOPs."""
    tiers = tier_costs(resnet_costs(56, 16), TABLE_TIERS)
    return pd.DataFrame(
        {
            "model": "resnet56",
            "tier": np.arange(1, TABLE_TIERS + 1),
            "printed_client": TABLE_2_CLIENT,
            "client": tiers.client_flops / tiers.client_flops[0],
            "printed_server": TABLE_2_SERVER,
            "server": tiers.server_flops / tiers.server_flops[0],
        }
    )


def table_4(config: Config) -> pd.DataFrame:
    """The mean round by the number of clients, of whom a tenth takes part."""
    rows = []
    for n_clients, totals in TABLE_4.items():
        clock = _of_d(config.clock, TABLE_4_MODEL)
        world = draw_world(clock, config.seed, ROUNDS, n_clients, TABLE_4_SHARE)
        means = _means(plan_tiers(config.tiering, clock, world))
        rows.append(
            {"model": clock.model, "clients": n_clients}
            | means
            | _over_fedavg({name.removesuffix("_s"): mean for name, mean in means.items()})
            | {f"printed_{name}": ratio for name, ratio in _over_fedavg(totals).items()}
        )
    return pd.DataFrame(rows)


def table_11(config: Config) -> pd.DataFrame:
    """Who has which modules, by number of tiers and tier, and what that costs."""
    clock = config.clock
    costs, rows = resnet_costs(clock.depth, clock.width), []
    for n_tiers in range(1, MOST_TIERS + 1):
        tiers = tier_costs(costs, n_tiers)
        for place, cut in enumerate(tiers.modules):
            rows.append(
                {
                    "model": clock.model,
                    "tiers": n_tiers,
                    "tier": place + 1,
                    "client": _modules(1, cut),
                    "server": _modules(cut + 1, len(costs.flops)),
                    "client_mflop": tiers.client_flops[place] / _MEGA,
                    "server_mflop": tiers.server_flops[place] / _MEGA,
                    "record_bytes": tiers.record_bytes[place],
                    "model_bytes": tiers.model_bytes[place],
                }
            )
    return pd.DataFrame(rows)


def figure_3(config: Config) -> pd.DataFrame:
    """The mean round by the number of tiers, in D's two cases, by D's scheduler and an oracle."""
    rows = []
    for case, profiles in CASES.items():
        switches = {"profiles": profiles, "switch_every": FIGURE_3_SWITCH_EVERY}
        clock = _of_d(config.clock, FIGURE_3_MODEL, **switches)
        world = draw_world(clock, config.seed, ROUNDS, CLIENTS)
        for n_tiers in range(1, MOST_TIERS + 1):
            dynamic = TieringConfig(tiers=n_tiers)
            means = _means(plan_tiers(dynamic, clock, world))
            means = {name: means[name] for name in ("dtfl_s", "oracle_s", "fedavg_s")}
            rows.append({"model": clock.model, "case": case, "tiers": n_tiers} | means)
    return pd.DataFrame(rows)


def _with(clock: ClockConfig, **keys: Any) -> ClockConfig:
    """The clock with other keys, which are known to be valid."""
    return clock.model_copy(update=keys)


def _of_d(clock: ClockConfig, model: str, **keys: Any) -> ClockConfig:
    """The clock with D's model and profiles, and with other keys."""
    return _with(clock, **{"model": model, "profiles": PROFILES, **keys})


def _dtfl_seconds(
    costs: ModuleCosts, clients: Clients, clock: ClockConfig, whole_model: bool = False
) -> float:
    """With all of D's tiers, and times that are known."""
    tiers = tier_costs(costs, MOST_TIERS, whole_model)
    times = round_times(tiers, clients, clock)
    return float(DTFL.seconds(times, scheduler.assign(times.parallel(), 1), clock).max())


def _means(plan: TierPlan) -> dict[str, float]:
    """Mean seconds of a round, by the columns of the table of rounds."""
    return {name: seconds.mean() for name, seconds in plan.by_way.items()}


def _over_fedavg(seconds: Mapping[str, float]) -> dict[str, float]:
    fedavg = seconds["fedavg"]
    return {f"{way}_over_fedavg": s / fedavg for way, s in seconds.items() if way != "fedavg"}


def _modules(first: int, last: int) -> str:
    return f"md{first}" if first == last else f"md{first}-md{last}"


def main() -> None:
    from tools import clock_figures  # which draw these tables

    parser = argparse.ArgumentParser(prog="python -m tools.clock_tables", description=__doc__)
    parser.add_argument("folder", type=Path, help="where tables and figures are written")
    parser.add_argument("--params", default=[], nargs="*", help="keys of the clock")
    options = parser.parse_args()
    config = load_config(read_assignments(options.params))
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, (make, draw) in clock_figures.DRAWN.items():
        table = make(config)
        table.to_csv(options.folder / f"clock_{name}.csv", index=False)
        draw(table).savefig(options.folder / f"clock_{name}.png")


if __name__ == "__main__":
    main()
