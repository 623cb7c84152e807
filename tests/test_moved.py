"""Old paths say in one line where things went."""

from importlib import import_module

import pytest

from m2fdp.moved import MOVED


@pytest.mark.parametrize(("old", "new"), MOVED.items())
def test_an_old_path_names_one_that_is_there(old, new):
    import_module(f"m2fdp.{new}")
    with pytest.raises(ModuleNotFoundError, match=rf"^m2fdp\.{old} is m2fdp\.{new} since 0\.21"):
        import_module(f"m2fdp.{old}")
