"""conf/base and docs/configuration.md say what the keys' texts and defaults say."""

import runpy

import pytest
import yaml
from tests.finished import REPOSITORY

from m2fdp.core.blocks import Block
from m2fdp.core.config import Config, flatten
from m2fdp.core.formatting import in_yaml

MADE = runpy.run_path(str(REPOSITORY / "docs/configuration.py"))
FILES, PAGE = MADE["parameter_files"](), MADE["page"]()
ANEW = "run `python docs/configuration.py`"


@pytest.mark.parametrize("name", FILES)
def test_conf_base_is_made_of_the_texts(name):
    written = (REPOSITORY / "conf/base" / name).read_text(encoding="utf-8")
    assert written == FILES[name], ANEW


def test_conf_base_is_what_config_is_without_it():
    files = sorted((REPOSITORY / "conf/base").glob("parameters*"))
    assert [file.name for file in files] == sorted(FILES)
    by_file = {}
    for file in files:
        by_file |= yaml.safe_load(file.read_text(encoding="utf-8"))
    defaults = Config().model_dump(exclude=set(MADE["COMMAND_LINE"]))
    assert flatten(by_file) == flatten(defaults)


def test_the_page_is_current():
    written = (REPOSITORY / "docs/configuration.md").read_text(encoding="utf-8")
    assert written == PAGE, ANEW


def described(block, prefix=""):
    for name in type(block).model_fields:
        value = getattr(block, name)
        if isinstance(value, Block):
            yield from described(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", MADE["text_of"](type(block), name)


def test_every_key_has_its_text_and_a_row():
    for key, text in described(Config()):
        assert text.endswith("."), key
        assert f"| `{key}` |" in PAGE


@pytest.mark.parametrize("value", [None, True, 1e-05, 2.5e20, 0.1, 3, "a", [1, 0.5], {1: 2}, []])
def test_values_are_read_back_as_they_were_written(value):
    again = yaml.safe_load(in_yaml(value))
    assert again == value and type(again) is type(value)
