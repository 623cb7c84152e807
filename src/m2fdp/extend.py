"""All that an algorithm, a network, a mechanism, a model or a data set of one's own is built on.

Import it from here. Where things stand inside the package may change, these names do not.
"""

from m2fdp.core.algorithms import ALGORITHMS, Algorithm, Given, NoOptions, Plan, build_plan
from m2fdp.core.algorithms.hfl import HFL
from m2fdp.core.algorithms.hfl_dp import HFL_DP
from m2fdp.core.algorithms.m2fdp import M2FDP
from m2fdp.core.config import Block, ClockConfig, Config, NonNegative, Positive, TieringConfig
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.data.manifest import make_manifest
from m2fdp.core.data.partitioners import Names
from m2fdp.core.data.sources import load_dataset
from m2fdp.core.engine.clipping import ClipFactor, flat_clip
from m2fdp.core.engine.local_rules import GradientStep, KeepingRule, LocalRule, ProximalStep
from m2fdp.core.engine.process import State
from m2fdp.core.engine.rules import Rules
from m2fdp.core.engine.server_rules import Momentum, ServerRule, TakeAggregate, Yogi
from m2fdp.core.errors import InputError
from m2fdp.core.models.registry import Model, build_model
from m2fdp.core.privacy.accounting import ShiftLaw, subsampled
from m2fdp.core.privacy.mechanisms import Mechanism
from m2fdp.core.privacy.mechanisms.base import Clipping, LockStep, Noise
from m2fdp.core.privacy.mechanisms.gradient import Gradient
from m2fdp.core.privacy.mechanisms.upload import Upload
from m2fdp.core.privacy.premises import Premises
from m2fdp.core.privacy.releases import Release
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.topology.builders import build_tree, star, tree_from_edges, tree_from_fanouts
from m2fdp.core.topology.network import Network, no_noise, noise_plan
from m2fdp.core.topology.tree import Tree
from m2fdp.core.topology.trust import all_trusted, all_untrusted, draw_trust, explicit_trust
from m2fdp.processes.elsewhere import Site, Sites
from m2fdp.tiers.plan import draw_world, plan_tiers
from m2fdp.tiers.ways import DTFL, FEDAVG, FEDGKT, SPLITFED, TierAlgorithm, Way
from m2fdp.zones.algorithm import ZoneAlgorithm

__all__ = [
    "ALGORITHMS",
    "DTFL",
    "FEDAVG",
    "FEDGKT",
    "HFL",
    "HFL_DP",
    "M2FDP",
    "SPLITFED",
    "Algorithm",
    "Block",
    "ClipFactor",
    "Clipping",
    "ClockConfig",
    "Config",
    "Dataset",
    "Given",
    "Gradient",
    "GradientStep",
    "InputError",
    "KeepingRule",
    "LocalRule",
    "LockStep",
    "Mechanism",
    "Model",
    "Momentum",
    "Names",
    "Network",
    "NoOptions",
    "Noise",
    "NonNegative",
    "Plan",
    "Positive",
    "Premises",
    "ProximalStep",
    "Release",
    "RoundPlan",
    "Rules",
    "Schedule",
    "ServerRule",
    "ShiftLaw",
    "Site",
    "Sites",
    "State",
    "TakeAggregate",
    "TierAlgorithm",
    "TieringConfig",
    "Tree",
    "Upload",
    "Way",
    "Yogi",
    "ZoneAlgorithm",
    "all_trusted",
    "all_untrusted",
    "build_model",
    "build_plan",
    "build_tree",
    "draw_trust",
    "draw_world",
    "explicit_trust",
    "flat_clip",
    "load_dataset",
    "make_manifest",
    "no_noise",
    "noise_plan",
    "plan_tiers",
    "star",
    "subsampled",
    "tree_from_edges",
    "tree_from_fanouts",
]
