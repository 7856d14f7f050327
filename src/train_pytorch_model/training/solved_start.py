"""The solved classifier of a race, which is validated before training and may remain the best.

Training itself starts as it does without a race, from a last layer of zeros: `solved_head` in
tests/benchmarks/accuracy measures it against starts from the solved classifier.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from train_pytorch_model.formats.race_record import read_race_arrays
from train_pytorch_model.networks.build import build_model
from train_pytorch_model.training.engine import Engine
from train_pytorch_model.training.state import copy_to_cpu


@contextmanager
def solved_weights(engine: Engine) -> Iterator[None]:
    """Have the network as the race has solved it, in a `with`; afterwards as it was before."""
    initial = copy_to_cpu(engine.network.state_dict())
    engine.network.load_state_dict(_solved(engine))
    try:
        yield
    finally:
        engine.network.load_state_dict(initial)


@torch.no_grad()
def _solved(engine: Engine) -> dict[str, torch.Tensor]:
    """Return the weights of the race's network, with the solved classifier as its last layer."""
    inputs = engine.plan.inputs
    arrays = read_race_arrays(inputs.model.root)
    network = build_model(inputs.model, inputs.categories)
    head = network.get_submodule(engine.plan.head)
    for parameter, values in ((head.weight, arrays.weight), (head.bias, arrays.bias)):
        assert isinstance(parameter, torch.Tensor)
        parameter.copy_(torch.from_numpy(values))
    return network.state_dict()
