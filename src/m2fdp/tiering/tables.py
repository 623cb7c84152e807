"""D's Tables 1, 2, 4 and 11, its Fig. 3 and its rates' two readings, from the clock alone.

Every table names the model whose times it shows. D's own tables are of D's models, clients and
profiles; speeds, scaling, unit, noise, server and labels are the configured clock's.
"""

from __future__ import annotations

from math import nan
from typing import Any

import numpy as np
import pandas as pd

from m2fdp.config import ClockConfig, Config, TieringConfig
from m2fdp.tiering import printed, scheduler
from m2fdp.tiering.clock import Clients, RoundTimes, clients_of, round_times
from m2fdp.tiering.costs import ModuleCosts, fedavg_costs, resnet_costs, tier_costs
from m2fdp.tiering.plan import TierPlan, baseline_seconds, draw_world, plan_tiers
from m2fdp.tiering.ways import DTFL

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
        split = round_times(tiers, clients, in_unit)
        whole = round_times(fedavg_costs(costs), clients, in_unit)
        for place, (cpus, rate) in enumerate(clock.profiles):
            about = {"model": clock.model, "rate_unit": unit, "cpus": cpus, "rate": rate}
            for tier in range(1, tiers.n_tiers + 1):
                rows.append(about | {"tier": tier} | _times(split, place, tier - 1))
            rows.append(about | {"tier": 0} | _times(whole, place, 0))
    return pd.DataFrame(rows)


def rounds_table(plan: TierPlan, config: Config) -> pd.DataFrame:
    """The configured plan, one row a round: its seconds, the baselines', and clients by tier."""
    tiering, clock = config.tiering, config.clock
    table = pd.DataFrame(
        {
            "round": np.arange(1, len(plan.seconds) + 1),
            "model": clock.model,
            "dtfl_s": plan.seconds,
            "oracle_s": plan.oracle,
            "fedavg_s": plan.fedavg,
            "splitfed_s": plan.splitfed,
            "fedgkt_s": plan.fedgkt,
        }
    )
    for tier in range(1, tiering.tiers + tiering.whole_model + 1):
        table[f"tier_{tier}"] = (plan.tiers == tier).sum(axis=1)
    return table


def units_table(config: Config) -> pd.DataFrame:
    """A round of D's ten clients at the start, by what a rate counts, without noise.

    Returns:
        One row a model, unit and way to train, with its seconds over FedAvg's, D's of a whole run
        (Table 3) and the rounds that D's over ours imply: `dtfl`, `dtfl`
        with a tier of the whole model, with a server that serves one client at a time, FedAvg,
        SplitFed and FedGKT.
    """
    rows = []
    for place, model in enumerate(printed.MODELS):
        totals = {way: seconds[place] for way, seconds in printed.TABLE_3.items()}
        for unit in UNITS:
            clock = _with(config.clock, model=model, width=16, rate_unit=unit, server="unlimited")
            costs, clients = resnet_costs(clock.depth, clock.width), _start(clock)
            ways = {
                "dtfl": _dtfl_seconds(costs, clients, clock),
                "dtfl, whole_model": _dtfl_seconds(costs, clients, clock, whole_model=True),
                "dtfl, shared server": _dtfl_seconds(costs, clients, _with(clock, server="shared")),
            }
            ones = np.ones(printed.CLIENTS)
            ways |= baseline_seconds(costs, clock, clients, ones)
            for way, seconds in ways.items():
                about = {"model": model, "rate_unit": unit, "algorithm": way, "round_s": seconds}
                total = totals.get(way, nan)
                implied = {"printed_total_s": total, "implied_rounds": total / seconds}
                rows.append(about | {"over_fedavg": seconds / ways["fedavg"]} | implied)
    return pd.DataFrame(rows)


def table_1(config: Config) -> pd.DataFrame:
    """Every client in one tier of six, or FedAvg, beside D's seconds to 80 %.

    Returns:
        One row a unit, case and tier (0 = FedAvg): the slowest client's seconds of a round, D's
        of the whole run, and the rounds that D's over ours imply. D's FedAvg counts one way.
    """
    rows = []
    for unit in UNITS:
        clock = _with(config.clock, model=printed.TABLE_1_MODEL, width=16, rate_unit=unit)
        costs = resnet_costs(clock.depth, clock.width)
        tiers = tier_costs(costs, printed.TABLE_TIERS, clock.label_bytes)
        for case, profiles in printed.CASES.items():
            about = {"model": clock.model, "rate_unit": unit, "case": case}
            slowest = _with(clock, profiles=profiles[-1:])
            client = clients_of(slowest, np.array([_records()]), np.array([0]))
            split = round_times(tiers, client, slowest)
            printed_parts = zip(
                printed.TABLE_1_COMPUTATION[case], printed.TABLE_1_COMMUNICATION[case], strict=True
            )
            for tier, parts in enumerate(printed_parts, 1):
                computation = max(split.client[0, tier - 1], split.server[0, tier - 1])
                sent = split.communication[0, tier - 1]
                rows.append(about | {"tier": tier} | _beside(computation, sent, parts, sent))
            whole = round_times(fedavg_costs(costs), client, slowest)
            sent = whole.communication[0, 0]
            parts = printed.TABLE_1_FEDAVG[case]
            rows.append(about | {"tier": 0} | _beside(whole.client[0, 0], sent, parts, sent / 2))
    return pd.DataFrame(rows)


def table_2(config: Config) -> pd.DataFrame:
    """Times by tier over tier 1's: D's measured ones, and FLOPs."""
    costs = resnet_costs(56, 16)
    tiers = tier_costs(costs, printed.TABLE_TIERS, config.clock.label_bytes)
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
    columns = zip(
        printed.TABLE_4_CLIENTS,
        printed.TABLE_4_DTFL,
        printed.TABLE_4_FEDAVG,
        printed.TABLE_4_SPLITFED,
        printed.TABLE_4_FEDGKT,
        strict=True,
    )
    for n_clients, dtfl, fedavg, splitfed, fedgkt in columns:
        clock = _with(
            config.clock,
            model=printed.TABLE_4_MODEL,
            width=16,
            clients=n_clients,
            records=printed.RECORDS,
            profiles=printed.PROFILES,
        )
        world = draw_world(clock, config.seed, printed.TABLE_4_SHARE)
        plan = plan_tiers(config.tiering, clock, world)
        mean = plan.fedavg.mean()
        rows.append(
            {
                "model": clock.model,
                "clients": n_clients,
                "dtfl_s": plan.seconds.mean(),
                "oracle_s": plan.oracle.mean(),
                "fedavg_s": mean,
                "splitfed_s": plan.splitfed.mean(),
                "fedgkt_s": plan.fedgkt.mean(),
                "dtfl_over_fedavg": plan.seconds.mean() / mean,
                "oracle_over_fedavg": plan.oracle.mean() / mean,
                "splitfed_over_fedavg": plan.splitfed.mean() / mean,
                "fedgkt_over_fedavg": plan.fedgkt.mean() / mean,
                "printed_dtfl_over_fedavg": dtfl / fedavg,
                "printed_splitfed_over_fedavg": splitfed / fedavg,
                "printed_fedgkt_over_fedavg": fedgkt / fedavg,
            }
        )
    return pd.DataFrame(rows)


def table_11(config: Config) -> pd.DataFrame:
    """Who has which modules, by number of tiers and tier, and what that costs."""
    clock = config.clock
    costs, rows = resnet_costs(clock.depth, clock.width), []
    n_modules = len(costs.flops)
    for n_tiers in range(1, printed.MOST_TIERS + 1):
        tiers = tier_costs(costs, n_tiers, clock.label_bytes)
        for place, cut in enumerate(tiers.modules):
            rows.append(
                {
                    "model": clock.model,
                    "tiers": n_tiers,
                    "tier": place + 1,
                    "client": _modules(1, cut),
                    "server": _modules(cut + 1, n_modules),
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
        clock = _with(
            config.clock,
            model=printed.FIGURE_3_MODEL,
            width=16,
            clients=printed.CLIENTS,
            records=printed.RECORDS,
            profiles=profiles,
            switch_every=printed.FIGURE_3_SWITCH_EVERY,
        )
        world = draw_world(clock, config.seed)
        for n_tiers in range(1, printed.MOST_TIERS + 1):
            dynamic = TieringConfig(tiers=n_tiers, ema=tiering.ema, remember=tiering.remember)
            plan = plan_tiers(dynamic, clock, world)
            rows.append(
                {
                    "model": clock.model,
                    "case": case,
                    "tiers": n_tiers,
                    "dtfl_s": plan.seconds.mean(),
                    "oracle_s": plan.oracle.mean(),
                    "fedavg_s": plan.fedavg.mean(),
                }
            )
    return pd.DataFrame(rows)


def _with(clock: ClockConfig, **keys: Any) -> ClockConfig:
    """The clock with other keys, which are known to be valid."""
    return clock.model_copy(update=keys)


def _records() -> float:
    return printed.RECORDS / printed.CLIENTS


def _start(clock: ClockConfig) -> Clients:
    """D's: two clients of each profile."""
    places = np.arange(printed.CLIENTS) * len(printed.PROFILES) // printed.CLIENTS
    config = _with(clock, profiles=printed.PROFILES)
    return clients_of(config, np.full(printed.CLIENTS, _records()), places)


def _dtfl_seconds(
    costs: ModuleCosts, clients: Clients, clock: ClockConfig, whole_model: bool = False
) -> float:
    """With all of D's tiers, and times that are known."""
    tiers = tier_costs(costs, printed.MOST_TIERS, clock.label_bytes, whole_model)
    times = round_times(tiers, clients, clock)
    tiers_of = scheduler.assign(times.parallel(), 1)
    return float(DTFL.seconds(times, tiers_of, clock).max())


def _times(times: RoundTimes, client: int, tier: int) -> dict[str, float]:
    return {
        "client_s": times.client[client, tier],
        "server_s": times.server[client, tier],
        "communication_s": times.communication[client, tier],
        "round_s": times.parallel()[client, tier],
    }


def _beside(
    computation: float, communication: float, parts: tuple[int, int], as_printed: float
) -> dict[str, float]:
    """Ours of a round, D's of a run, and the rounds between.

    Args:
        parts: D's computation and communication.
        as_printed: the communication of what D counts.
    """
    return {
        "computation_s": computation,
        "communication_s": communication,
        "round_s": computation + communication,
        "printed_computation_s": parts[0],
        "printed_communication_s": parts[1],
        "printed_total_s": sum(parts),
        "rounds_by_computation": parts[0] / computation,
        "rounds_by_communication": parts[1] / as_printed,
    }


def _modules(first: int, last: int) -> str:
    return f"md{first}" if first == last else f"md{first}-md{last}"
