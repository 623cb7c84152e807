"""The assembly room: a configuration becomes plan, mechanism, training, audit, bound and attack."""

from m2fdp.experiments.experiment import Experiment
from m2fdp.experiments.results import Calibration, ConvergenceBounds, Trained

__all__ = ["Calibration", "ConvergenceBounds", "Experiment", "Trained"]
