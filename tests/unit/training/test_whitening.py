"""Steps of a last layer on features as if these were white."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from train_pytorch_model.training.whitening import Whitening, whitening_of

FEATURES, CATEGORIES = 6, 3


def features_of(count: int, seed: int = 0) -> Tensor:
    """Features with a large mean, and much variance along two directions."""
    generator = torch.Generator().manual_seed(seed)
    spread = torch.tensor([8.0, 3.0, 0.5, 0.5, 0.5, 0.5])
    return 10 + torch.randn(count, FEATURES, generator=generator) * spread


def whitening(count: int = 12) -> Whitening:
    found = whitening_of(features_of(count))
    assert found is not None
    return found


def scaling(of: Whitening) -> Tensor:
    """P, by which gradients of centred features are multiplied."""
    return torch.eye(FEATURES) - of.directions.T @ (of.damping[:, None] * of.directions)


def test_a_step_is_one_of_a_layer_on_white_features() -> None:
    """SGD in the coordinates P^(1/2) (x - mean), then told in those of x."""
    given = whitening()
    root = torch.linalg.cholesky(scaling(given))
    features = features_of(20, seed=1)
    targets = (torch.arange(60).reshape(20, 3) % 2).float()
    head = nn.Linear(FEATURES, CATEGORIES)
    on_white = nn.Linear(FEATURES, CATEGORIES)
    with torch.no_grad():
        on_white.weight.copy_(torch.linalg.solve(root, head.weight.T).T)
        on_white.bias.copy_(head.bias + head.weight @ given.mean)
    optimizer = torch.optim.SGD(head.parameters(), 0.01, momentum=0.9, nesterov=True)
    optimizer_on_white = torch.optim.SGD(on_white.parameters(), 0.01, momentum=0.9, nesterov=True)
    given.attach(optimizer, head)

    for _ in range(5):
        for layer, seen in ((head, features), (on_white, (features - given.mean) @ root)):
            loss = binary_cross_entropy_with_logits(layer(seen), targets)
            loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer_on_white.step()
        optimizer.zero_grad()
        optimizer_on_white.zero_grad()
    expected = on_white((features - given.mean) @ root)
    torch.testing.assert_close(head(features), expected, rtol=1e-4, atol=1e-4)


def test_steps_along_what_varies_most_are_shortest() -> None:
    lengths = scaling(whitening()).diagonal()
    assert lengths[0] < lengths[1] < lengths[2:].min()
    assert lengths[2:].max() <= 1


def test_the_norm_is_that_of_features_outside_the_sample() -> None:
    given = whitening(16)
    centred = features_of(4000, seed=2) - given.mean
    norms = torch.einsum("nf,fg,ng->n", centred, scaling(given), centred)
    assert given.squared_norm == pytest.approx(float(norms.mean()), rel=0.4)


def test_few_images_are_not_whitened() -> None:
    assert whitening_of(features_of(2)) is None
    assert whitening_of(torch.empty(0, 0)) is None


def test_features_that_do_not_vary_are_only_centred() -> None:
    given = whitening_of(torch.full((8, FEATURES), 2.0))
    assert given is not None
    assert torch.equal(given.damping, torch.zeros_like(given.damping))
    assert given.squared_norm == 0


def test_a_layer_without_gradients_stays() -> None:
    head = nn.Linear(FEATURES, CATEGORIES)
    before = copy.deepcopy(head.state_dict())
    whitening().scale(head)
    assert all(torch.equal(before[name], value) for name, value in head.state_dict().items())
