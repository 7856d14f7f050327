"""A training step in micro-batches is equivalent to one in a single batch."""

import numpy as np
import pytest
import torch
from tests.trainings import PLAIN
from torch import nn

from train_pytorch_model.data.batch import Batch
from train_pytorch_model.distributed.world import World
from train_pytorch_model.training.metrics import Sums
from train_pytorch_model.training.optimizer import make_optimizer, momentum_of
from train_pytorch_model.training.precision import Precision
from train_pytorch_model.training.step import TrainStep

CPU = torch.device("cpu")
PRECISION = Precision(torch.float32, "of this test")
FLOAT16 = Precision(torch.float16, "of this test")


def batch_of(count: int) -> Batch:
    images = torch.randint(
        0, 256, (count, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
    )
    indices = np.arange(count)
    return Batch(images, torch.arange(count) % 3, indices, count, {})


class Network(nn.Module):
    """Without batch norm, so that images are independent of each other; records its batch sizes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(48, 3)
        self.given: list[int] = []

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.given.append(len(images))
        logits: torch.Tensor = self.linear(images.flatten(1).float() / 255)
        return logits


def step_of(
    network: Network,
    micro_batch: int | None,
    min_local_batch: int = 1,
    precision: Precision = PRECISION,
) -> TrainStep:
    return TrainStep(
        model=network,
        optimizer=make_optimizer(network),
        scaler=precision.scaler(CPU),
        task=PLAIN,
        precision=precision,
        world=World(0, 1, 0, 1, CPU),
        micro_batch=micro_batch,
        min_local_batch=min_local_batch,
    )


@pytest.mark.parametrize(
    ("micro_batch", "min_local_batch", "given"),
    [
        (None, 1, [7]),
        (7, 1, [7]),
        (4, 1, [4, 3]),
        (3, 1, [3, 2, 2]),
        (1, 1, [1] * 7),
        (2, 2, [3, 2, 2]),  # not [2, 2, 2, 1]: batch norm cannot take a single image
        (3, 3, [4, 3]),
    ],
)
def test_micro_batches_add_up_to_the_gradient_of_the_batch(
    micro_batch: int | None, min_local_batch: int, given: list[int]
) -> None:
    whole, parts = Network(), Network()
    sums = [Sums(CPU), Sums(CPU)]
    outputs = [
        step_of(network, size, min_local_batch)(batch_of(7), 0.1, each)
        for network, size, each in ((whole, None, sums[0]), (parts, micro_batch, sums[1]))
    ]
    assert parts.given == given
    torch.testing.assert_close(outputs[1].loss_sum, outputs[0].loss_sum)
    assert torch.equal(outputs[1].margins, outputs[0].margins)
    assert outputs[0].margins.shape == (2, 7)
    torch.testing.assert_close(parts.linear.weight, whole.linear.weight)
    assert sums[1].values[1:].tolist() == sums[0].values[1:].tolist()


def test_an_empty_share_is_one_micro_batch() -> None:
    network = Network()
    step_of(network, 2)(
        Batch(*(batch_of(1).images[:0], batch_of(1).targets[:0]), np.arange(0), 4, {}),
        0.1,
        Sums(CPU),
    )
    assert network.given == [0]


def test_a_share_that_unreadable_images_reduce_below_the_minimum_is_skipped() -> None:
    network, sums = Network(), Sums(CPU)
    before = network.linear.weight.detach().clone()
    assert step_of(network, None, min_local_batch=2)(batch_of(1), 0.1, sums).margins.shape == (2, 0)
    assert network.given == [0]
    assert not sums.values.any()
    torch.testing.assert_close(
        network.linear.weight, before, rtol=1e-4, atol=0
    )  # except for weight decay


def test_a_float16_step_that_overflows_is_skipped_and_the_next_is_taken() -> None:
    network, plain = Network(), Network()
    before = network.linear.weight.detach().clone()
    step = step_of(network, 4, precision=FLOAT16)
    usual = step.scaler.state_dict()
    step.scaler.load_state_dict({**usual, "scale": 2.0**127})
    assert torch.isfinite(step(batch_of(7), 0.1, Sums(CPU)).loss_sum)
    assert torch.equal(network.linear.weight, before)
    assert not momentum_of(step.optimizer, network)["linear.weight"].any()
    assert step.scaler.get_scale() == 2.0**126
    step.scaler.load_state_dict(usual)
    losses = [each(batch_of(7), 0.1, Sums(CPU)).loss_sum for each in (step, step_of(plain, None))]
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(network.linear.weight, plain.linear.weight, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("precision", [PRECISION, Precision(torch.bfloat16, "of this test")])
def test_other_precisions_have_no_loss_scaling(precision: Precision) -> None:
    step = step_of(Network(), None, precision=precision)
    step(batch_of(7), 0.1, Sums(CPU))
    assert step.scaler.state_dict() == {}
