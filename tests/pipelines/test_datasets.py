import os
import signal
from unittest.mock import MagicMock

import pandas as pd
import pytest
import torch
from kedro.io import AbstractDataset, DatasetError
from matplotlib.figure import Figure

from m2fdp.interruption import Interrupted, interruptible
from m2fdp.pipelines.configuration import UninterruptedCatalog
from m2fdp.pipelines.datasets import FigureDataset, RecordDataset, StateDictDataset, TableDataset
from m2fdp.pipelines.tracking import trouble


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


CONTENTS = {
    StateDictDataset: (_state(), {"weight": torch.ones(2)}),
    TableDataset: (pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"b": [3]})),
    RecordDataset: ({"a": 1}, {"b": 2}),
    FigureDataset: (Figure(), Figure(figsize=(1, 1))),
}


@pytest.fixture(params=CONTENTS, ids=lambda dataset: dataset.__name__)
def saved(request, tmp_path):
    """A data set that has been saved, its file, what is in it, and what to save next."""
    old, new = CONTENTS[request.param]
    path = tmp_path / "folder" / "file.png"
    dataset = request.param(filepath=str(path))
    dataset.save(old)
    return dataset, path, path.read_bytes(), new


def test_a_save_that_the_disk_refuses_names_its_file_and_leaves_the_old_one(saved, small_files):
    dataset, path, before, new = saved
    with small_files(), pytest.raises((OSError, DatasetError)) as refused:
        dataset.save(new)
    assert trouble(refused.value) == (
        f"{path}: File too large. Files that were there before are as they were."
    )
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_save_replaces_the_whole_file_or_nothing(saved, tmp_path, monkeypatch):
    dataset, path, before, new = saved
    (tmp_path / "plain").touch()  # others can read both
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        # The content is written by then, and not yet in its place.
        patched.setattr(os, "fsync", MagicMock(side_effect=KeyboardInterrupt))
        dataset.save(new)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
    dataset.save(new)
    assert path.read_bytes() != before
    assert list(path.parent.iterdir()) == [path]


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
