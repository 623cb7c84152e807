"""What each mechanism refuses of the block `privacy`, in the words that a user reads."""

import pytest

from m2fdp.core.config import parse_config
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.checks import check_config
from m2fdp.core.privacy.mechanisms import get_mechanism

UPLOAD = {"mechanism": "upload"}


@pytest.mark.parametrize(
    ("privacy", "words"),
    [
        ({"calibration": "paper"}, "not defined for mechanism: gradient; use accountant"),
        ({"adjacency": "replace_one", "unit": "device"}, "use add_remove"),
        (UPLOAD | {"adjacency": "replace_one"}, "use add_remove"),
        (UPLOAD | {"calibration": "paper", "unit": "device"}, "knows records"),
    ],
)
def test_what_is_not_defined_is_told_in_one_line(privacy, words):
    config = parse_config({"privacy": privacy})
    with pytest.raises(InputError, match=rf"^privacy: .*{words}") as caught:
        check_config(config)
    assert "\n" not in str(caught.value)


def test_an_unknown_mechanism_is_told_with_the_known_ones():
    with pytest.raises(InputError, match="privacy.mechanism = 'laplace': .*gradient, upload"):
        get_mechanism("laplace")
