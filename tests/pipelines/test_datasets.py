import os
import signal

import pytest
import torch
from kedro.io import AbstractDataset

from m2fdp.interruption import Interrupted, interruptible
from m2fdp.pipelines.catalog import UninterruptedCatalog
from m2fdp.pipelines.datasets import StateDictDataset


def _state():
    return {
        "weight": torch.arange(12, dtype=torch.float32).reshape(3, 4)[:, ::2],
        "bias": torch.zeros(3, requires_grad=True),
    }


def test_a_state_dict_comes_back_and_its_bytes_depend_on_its_content_only(tmp_path):
    paths = [tmp_path / "a" / "model.pt", tmp_path / "b" / "other_name.pt"]
    for path in paths:
        StateDictDataset(str(path)).save(_state())
    loaded = StateDictDataset(str(paths[0])).load()
    assert list(loaded) == ["weight", "bias"]
    torch.testing.assert_close(loaded, _state())
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_view_is_saved_without_the_rest_of_its_storage(tmp_path):
    path = tmp_path / "model.pt"
    StateDictDataset(str(path)).save({"row": torch.zeros(1000, 1000)[0]})
    assert path.stat().st_size < 10_000


def test_a_save_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "model.pt"
    dataset = StateDictDataset(str(path))
    dataset.save(_state())
    before = path.read_bytes()

    def fail(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(KeyboardInterrupt):
        dataset.save({"weight": torch.ones(2)})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_catalog_finishes_a_save_before_a_signal_takes_effect(tmp_path):
    class Signalling(AbstractDataset):
        def load(self):
            return (tmp_path / "whole").read_text()

        def save(self, data):
            (tmp_path / "half").write_text(data)
            os.kill(os.getpid(), signal.SIGTERM)
            (tmp_path / "whole").write_text(data)

        def _describe(self):
            return {}

    catalog = UninterruptedCatalog({"output": Signalling()})
    with pytest.raises(Interrupted), interruptible():
        catalog.save("output", "content")
    assert (tmp_path / "whole").read_text() == "content"
