"""A run on features in the place of pixels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from m2fdp.core.config import PIXELS
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.engine.arithmetic import available_cores
from m2fdp.core.experiment.experiment import PlainExperiment
from m2fdp.core.models.checks import Shape
from m2fdp.features.mapping import Computing, input_shape, map_records
from m2fdp.features.overlap import refuse_records


class Mapped(PlainExperiment):
    """A run whose models may take features (`features`)."""

    @property
    def input_shape(self) -> Shape:
        return input_shape(self.config.features, self.dataset.shape)

    def inputs_of(
        self, dataset: Dataset, on_chunk: Callable[[int, int], None] = lambda done, total: None
    ) -> Dataset:
        config, workers = self.config, available_cores(self.config.threads)
        plain = super().inputs_of(dataset)
        return map_records(plain, config.features, Computing(config.device, workers, on_chunk))

    def check_split(self, sizes: np.ndarray) -> None:
        """Also refuse public images that are records."""
        if self.config.features.map != PIXELS:
            refuse_records(self.config.features.public, self.dataset)
        super().check_split(sizes)
