"""torchvision must import beside any build of torch, and first import wins: a fresh process."""

import subprocess
import sys


def test_data_sets_import_in_a_fresh_process():
    code = (
        "from m2fdp.sources.torchvision import import_datasets\n"
        "assert import_datasets() is import_datasets()\n"
        "print(import_datasets().FashionMNIST.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "FashionMNIST"
