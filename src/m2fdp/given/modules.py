"""Whether a module of a user can be given one record at a time."""

from traceback import walk_tb

import torch
from torch import Tensor, nn

from m2fdp.core.errors import InputError, chain
from m2fdp.core.models.checks import KEY, Shape
from m2fdp.given.own_code import guarded


def check_one_by_one(name: str, module: nn.Module, shape: Shape, who: str) -> None:
    """Refuse a module that can't be given one record at a time by torch.func.vmap.

    Args:
        who: what gives it records so, in words.

    Raises:
        InputError: it can't, for what it does.
    """

    def score(parameters: dict[str, Tensor], record: Tensor) -> Tensor:
        return torch.func.functional_call(module, parameters, (record[None],)).sum()

    parameters = {key: parameter.detach() for key, parameter in module.named_parameters()}
    what = f"can't be vectorised over records by torch.func.vmap, which {who} needs"
    try:
        with guarded(KEY, name, what):
            by_record = torch.func.vmap(torch.func.grad(score), in_dims=(None, 0))
            by_record(parameters, some_records(shape))
    except InputError as error:
        *_, first = chain(error)
        running = (frame.f_locals.get("self") for frame, _ in walk_tb(first.__traceback__))
        *_, last = (None, *(part for part in running if isinstance(part, nn.Module)))
        places = {part: place for place, part in module.named_modules() if place}
        if last not in places:
            raise
        cells = "; called without a first state of your own it can be"
        remedy = f"has {layer_in_words(places[last], last)}, and {error.remedy}"
        raise InputError(KEY, name, remedy + cells * isinstance(last, nn.RNNBase)) from error


def layer_in_words(place: str, part: nn.Module) -> str:
    """What a module is, and where in another, in words."""
    return type(part).__name__ + (f" (layer {place})" if place else "")


def some_records(shape: Shape, n_records: int = 3) -> Tensor:
    """Drawn records (n, C, H, W), the same each time."""
    return torch.rand(n_records, *shape, generator=torch.Generator().manual_seed(0))
