"""D's Tables 1, 2, 4 and 11, its Fig. 3 and its rates' two readings, from the clock alone.

Every table names the model whose times it shows. D's own tables are of D's models, clients and
profiles; speeds, scaling, unit, noise, server and labels are the configured clock's.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import nan
from typing import Any

import numpy as np
import pandas as pd

from m2fdp.core.config import Config
from m2fdp.tiers import printed, scheduler
from m2fdp.tiers.clock import Clients, clients_of, round_times
from m2fdp.tiers.config import ClockConfig, TieringConfig
from m2fdp.tiers.costs import ModuleCosts, fedavg_costs, tier_costs
from m2fdp.tiers.module_costs import resnet_costs
from m2fdp.tiers.plan import TierPlan, baseline_seconds, draw_world, plan_tiers
from m2fdp.tiers.ways import DTFL

UNITS = ("mebibyte", "megabit")
_MEGA = 1e6


def times_table(config: Config) -> pd.DataFrame:
    """Seconds of a round of each profile in each tier, in both units, without noise.

    Returns:
        One row a unit, profile and tier; FedAvg's row has its place after them, as tier 0.
    """
    tiering, clock = config.tiering, config.clock
    costs, rows = resnet_costs(clock.depth, clock.width), []
    tiers = tier_costs(costs, tiering.tiers, clock.label_bytes, tiering.whole_model)
    n_profiles = len(clock.profiles)
    for unit in UNITS:
        in_unit = _with(clock, rate_unit=unit)
        records = np.full(n_profiles, clock.records / clock.clients)
        clients = clients_of(in_unit, records, np.arange(n_profiles))
        split, whole = (
            round_times(each, clients, in_unit) for each in (tiers, fedavg_costs(costs))
        )
        for client, (cpus, rate) in enumerate(clock.profiles):
            for tier in (*range(1, tiers.n_tiers + 1), 0):
                times, at = (split, (client, tier - 1)) if tier else (whole, (client, 0))
                rows.append(
                    {
                        "model": clock.model,
                        "rate_unit": unit,
                        "cpus": cpus,
                        "rate": rate,
                        "tier": tier,
                        "client_s": times.client[at],
                        "server_s": times.server[at],
                        "communication_s": times.communication[at],
                        "round_s": times.parallel()[at],
                    }
                )
    return pd.DataFrame(rows)


def rounds_table(plan: TierPlan, config: Config) -> pd.DataFrame:
    """The configured plan, one row a round: its seconds, the baselines', and clients by tier."""
    tiering, numbers = config.tiering, np.arange(1, len(plan.seconds) + 1)
    table = pd.DataFrame({"round": numbers, "model": config.clock.model, **plan.by_way})
    for tier in range(1, tiering.tiers + tiering.whole_model + 1):
        table[f"tier_{tier}"] = (plan.tiers == tier).sum(axis=1)
    return table


def units_table(config: Config) -> pd.DataFrame:
    """A round of D's ten clients at the start, by what a rate counts, without noise.

    Returns:
        One row a model, unit and way to train, with its seconds over FedAvg's, D's of a whole run
        (Table 3) and the rounds that D's over ours imply: `dtfl`, the same with a tier of the whole
        model, with a server that serves one client at a time, FedAvg, SplitFed and FedGKT.
    """
    rows = []
    for place, model in enumerate(printed.MODELS):
        for unit in UNITS:
            clock = _of_d(config.clock, model, rate_unit=unit, server="unlimited")
            costs = resnet_costs(clock.depth, clock.width)
            # Two clients of each profile.
            profiles = np.arange(printed.CLIENTS) * len(clock.profiles) // printed.CLIENTS
            clients = clients_of(clock, np.full(printed.CLIENTS, _RECORDS), profiles)
            ways = {
                "dtfl": _dtfl_seconds(costs, clients, clock),
                "dtfl, whole_model": _dtfl_seconds(costs, clients, clock, whole_model=True),
                "dtfl, shared server": _dtfl_seconds(costs, clients, _with(clock, server="shared")),
                **baseline_seconds(costs, clock, clients, np.ones(printed.CLIENTS)),
            }
            for way, seconds in ways.items():
                total = printed.TABLE_3[way][place] if way in printed.TABLE_3 else nan
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
        for case, profiles in printed.CASES.items():
            slowest = profiles[-1:]
            clock = _of_d(config.clock, printed.TABLE_1_MODEL, rate_unit=unit, profiles=slowest)
            costs = resnet_costs(clock.depth, clock.width)
            tiers = tier_costs(costs, printed.TABLE_TIERS, clock.label_bytes)
            client = clients_of(clock, np.array([_RECORDS]), np.array([0]))
            split, whole = (
                round_times(each, client, clock) for each in (tiers, fedavg_costs(costs))
            )
            of_d = printed.TABLE_1_COMPUTATION[case], printed.TABLE_1_COMMUNICATION[case]
            for tier, computed, sent in zip(printed.TABLE_1_TIERS, *of_d, strict=True):
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
    tiers = tier_costs(resnet_costs(56, 16), printed.TABLE_TIERS, config.clock.label_bytes)
    return pd.DataFrame(
        {
            "model": printed.TABLE_2_MODEL,
            "tier": np.arange(1, printed.TABLE_TIERS + 1),
            "printed_client": printed.TABLE_2_CLIENT,
            "client": tiers.client_flops / tiers.client_flops[0],
            "printed_server": printed.TABLE_2_SERVER,
            "server": tiers.server_flops / tiers.server_flops[0],
        }
    )


def table_4(config: Config) -> pd.DataFrame:
    """The mean round by the number of clients, of whom a tenth takes part."""
    rows = []
    for n_clients, totals in printed.TABLE_4.items():
        clock = _of_d(config.clock, printed.TABLE_4_MODEL, clients=n_clients)
        world = draw_world(clock, config.seed, printed.TABLE_4_SHARE)
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
    for n_tiers in range(1, printed.MOST_TIERS + 1):
        tiers = tier_costs(costs, n_tiers, clock.label_bytes)
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
    tiering, rows = config.tiering, []
    for case, profiles in printed.CASES.items():
        switches = {"profiles": profiles, "switch_every": printed.FIGURE_3_SWITCH_EVERY}
        clock = _of_d(config.clock, printed.FIGURE_3_MODEL, **switches)
        world = draw_world(clock, config.seed)
        for n_tiers in range(1, printed.MOST_TIERS + 1):
            dynamic = TieringConfig(tiers=n_tiers, ema=tiering.ema, remember=tiering.remember)
            means = _means(plan_tiers(dynamic, clock, world))
            means = {name: means[name] for name in ("dtfl_s", "oracle_s", "fedavg_s")}
            rows.append({"model": clock.model, "case": case, "tiers": n_tiers} | means)
    return pd.DataFrame(rows)


# D's clients hold equally many.
_RECORDS = printed.RECORDS / printed.CLIENTS


def _with(clock: ClockConfig, **keys: Any) -> ClockConfig:
    """The clock with other keys, which are known to be valid."""
    return clock.model_copy(update=keys)


def _of_d(clock: ClockConfig, model: str, **keys: Any) -> ClockConfig:
    """The clock with D's model, clients, records and profiles, and with other keys."""
    counts = {"clients": printed.CLIENTS, "records": printed.RECORDS, "profiles": printed.PROFILES}
    return _with(clock, **{"model": model, "width": 16, **counts, **keys})


def _dtfl_seconds(
    costs: ModuleCosts, clients: Clients, clock: ClockConfig, whole_model: bool = False
) -> float:
    """With all of D's tiers, and times that are known."""
    tiers = tier_costs(costs, printed.MOST_TIERS, clock.label_bytes, whole_model)
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
