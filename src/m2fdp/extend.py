"""All that an algorithm, a network, a mechanism, a model or a data set of one's own is built on.

Import it from here. Where things stand inside the package may change, these names do not.
"""

from m2fdp.core.algorithms import ALGORITHMS, Algorithm, Given, NoOptions, Plan, build_plan
from m2fdp.core.algorithms.hfl import HFL
from m2fdp.core.algorithms.hfl_dp import HFL_DP
from m2fdp.core.algorithms.m2fdp import M2FDP
from m2fdp.core.blocks import Block, NonNegative, Positive
from m2fdp.core.config import Config
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.data.manifest import make_manifest
from m2fdp.core.data.partitioners import Names
from m2fdp.core.data.sources import load_dataset
from m2fdp.core.engine.process import State
from m2fdp.core.engine.rules import (
    ClipFactor,
    GradientStep,
    KeepingRule,
    LocalRule,
    Momentum,
    ProximalStep,
    Rules,
    ServerRule,
    TakeAggregate,
    Yogi,
    flat_clip,
)
from m2fdp.core.errors import InputError
from m2fdp.core.metrics import Metric
from m2fdp.core.models.registry import Model, build_model
from m2fdp.core.privacy.accounting import ShiftLaw, subsampled
from m2fdp.core.privacy.mechanisms import Clipping, LockStep, Mechanism, Noise
from m2fdp.core.privacy.mechanisms.gradient import Gradient
from m2fdp.core.privacy.mechanisms.upload import Upload
from m2fdp.core.privacy.premises import Premises
from m2fdp.core.privacy.releases import Release
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.topology.builders import build_tree, star, tree_from_fanouts
from m2fdp.core.topology.network import Network, no_noise, noise_plan
from m2fdp.core.topology.tree import Tree
from m2fdp.core.topology.trust import all_trusted, all_untrusted, draw_trust, explicit_trust
from m2fdp.given.edges import tree_from_edges
from m2fdp.processes.elsewhere import Site, Sites
from m2fdp.tiers.config import ClockConfig, TieringConfig
from m2fdp.tiers.plan import draw_world, plan_tiers
from m2fdp.tiers.ways import DTFL, FEDAVG, FEDGKT, SPLITFED, TierAlgorithm, Way
from m2fdp.zones.algorithm import ZoneAlgorithm

__all__ = ["ALGORITHMS", "HFL", "HFL_DP", "M2FDP", "Algorithm", "Given", "NoOptions", "Plan"]
__all__ += ["build_plan"]
__all__ += ["Dataset", "Metric", "Model", "Names", "build_model", "load_dataset", "make_manifest"]
__all__ += ["ClipFactor", "GradientStep", "KeepingRule", "LocalRule", "Momentum", "ProximalStep"]
__all__ += ["Rules", "ServerRule", "Site", "Sites", "State", "TakeAggregate", "Yogi", "flat_clip"]
__all__ += ["Clipping", "Gradient", "LockStep", "Mechanism", "Noise", "Premises", "Release"]
__all__ += ["ShiftLaw", "Upload", "subsampled"]
__all__ += ["Network", "RoundPlan", "Schedule", "Tree", "all_trusted", "all_untrusted"]
__all__ += ["build_tree", "draw_trust", "explicit_trust", "no_noise", "noise_plan", "star"]
__all__ += ["tree_from_edges", "tree_from_fanouts"]
__all__ += ["DTFL", "FEDAVG", "FEDGKT", "SPLITFED", "ClockConfig", "TierAlgorithm", "TieringConfig"]
__all__ += ["Way", "ZoneAlgorithm", "draw_world", "plan_tiers"]
__all__ += ["Block", "Config", "InputError", "NonNegative", "Positive"]
