"""Networks on a CPU: which convolutions compute in float32, and how."""

import copy

import pytest
import torch
from torch import nn

from train_pytorch_model.image_classifier.architectures import build
from train_pytorch_model.networks.batch_norms import is_depthwise
from train_pytorch_model.networks.cpu_convolutions import adapt_to_cpu


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def test_only_depthwise_convolutions_compute_in_float32() -> None:
    network = build("mobilenet_v3_small", False, 3)
    names = list(network.state_dict())
    adapt_to_cpu(network)
    assert list(network.state_dict()) == names
    computed: dict[bool, set[torch.dtype]] = {False: set(), True: set()}
    returned: set[torch.dtype] = set()

    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(lambda _, __, made: returned.add(made.dtype))
    convolve = nn.Conv2d._conv_forward

    def noted(
        self: nn.Conv2d, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        made: torch.Tensor = convolve(self, input, weight, bias)
        computed[is_depthwise(self)].add(made.dtype)
        return made

    with pytest.MonkeyPatch.context() as patch, torch.autocast("cpu", torch.bfloat16):
        patch.setattr(nn.Conv2d, "_conv_forward", noted)
        network(torch.rand(2, 3, 64, 64))
    assert computed == {False: {torch.bfloat16}, True: {torch.float32}}
    assert returned == {torch.bfloat16}  # so that the following layers stay as fast


def test_a_depthwise_convolution_has_the_gradients_of_float32() -> None:
    torch.manual_seed(0)
    plain = nn.Conv2d(4, 4, 3, padding=1, groups=4)
    adapted = copy.deepcopy(plain)
    adapt_to_cpu(adapted)
    images = torch.randn(2, 4, 8, 8).bfloat16()
    gradient = torch.randn(2, 4, 8, 8).bfloat16()
    plain(images.float()).backward(gradient.float())
    with torch.autocast("cpu", torch.bfloat16):
        adapted(images).backward(gradient)
    torch.testing.assert_close(adapted.weight.grad, plain.weight.grad)
    torch.testing.assert_close(adapted(images.float()), plain(images.float()))


def test_convolutions_that_pad_by_themselves_stay() -> None:
    class Padding(nn.Conv2d):
        pass

    layers = (Padding(3, 3, 3), nn.Conv2d(3, 3, 3, padding="same"), nn.Conv2d(3, 3, 1))
    network = nn.Sequential(*layers, nn.Conv2d(3, 3, 3, padding=1, padding_mode="reflect"))
    before = list(map(type, network))
    adapt_to_cpu(network)
    changed = [before is not type(layer) for before, layer in zip(before, network, strict=True)]
    assert changed == [False, False, True, False]
