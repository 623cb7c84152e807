"""Flags that hold for the whole process."""

import torch

from m2fdp.core.engine.arithmetic import set_exact_arithmetic


def test_float32_stays_float32_and_operators_have_one_thread(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    set_exact_arithmetic()
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32
    assert torch.get_num_threads() == 1
