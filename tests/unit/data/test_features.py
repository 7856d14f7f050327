"""Features of a frozen backbone: each is computed once, and what is trained on them stays as is."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.painting import paint_folders
from tests.ranks.checks import with_lists
from tests.recipes import decided_recipe
from tests.trainings import TINY, Training, start_training, uncached
from torch import Tensor, nn

from train_pytorch_model.commands.init_model import InitModel
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.data import cache_budget
from train_pytorch_model.data.batch import Batch
from train_pytorch_model.data.cache_plan import Views
from train_pytorch_model.data.dataset import EpochPlan, training_dataset
from train_pytorch_model.data.epoch_plan import PlannedBatch
from train_pytorch_model.data.features import FeatureCache
from train_pytorch_model.data.preparation import for_training
from train_pytorch_model.formats.image_directory import open_image_directory
from train_pytorch_model.image_classifier.architectures import FAMILIES, Family, build
from train_pytorch_model.image_classifier.spec import Framing
from train_pytorch_model.inputs.opening import open_training_inputs
from train_pytorch_model.networks.batch_norms import set_training_mode
from train_pytorch_model.networks.dry_runs import WithoutMemory, width_of_features
from train_pytorch_model.networks.frozen_backbone import freeze_backbone
from train_pytorch_model.training.batches import Batches, open_batches
from train_pytorch_model.training.fine_tuning import LearningRateFactors
from train_pytorch_model.training.plan_text import describe
from train_pytorch_model.training.snapshot import restore, take_snapshot

EPOCHS = 3
TRAINED, VALIDATED = 14, 5  # images
Begin = Callable[..., Training]


@pytest.fixture
def begin(tmp_path: Path) -> Begin:
    """Start a training with a frozen backbone on 15 images, and 6 for validation; one of each is
    damaged.
    """
    training = paint_folders(tmp_path / "training", 5)
    validation = paint_folders(tmp_path / "validation", 2, first=10)
    for damaged in (training / "blue" / "0.png", validation / "red" / "10.png"):
        damaged.write_bytes(damaged.read_bytes()[:-900])

    def started(
        recipe: Recipe = Recipe(precision="float32"),  # noqa: B008 (it is immutable)
        flips: bool = True,
        epochs: int = EPOCHS,
        is_pretrained_for_lists: bool = False,
    ) -> Training:
        untrained = tmp_path / f"untrained {len(list(tmp_path.iterdir()))}"
        entries = {"image_size": 32, "freeze_backbone": True, **recipe.as_mapping()}
        InitModel(output=untrained, architecture=TINY, recipe=Recipe.from_mapping(entries)).run()
        inputs = open_training_inputs(untrained, training, validation, epochs).with_flips(flips)
        if is_pretrained_for_lists:
            pretrained = replace(inputs.model, is_pretrained=True)
            inputs = replace(with_lists(inputs), model=pretrained)
        config = TrainConfig(batch_size=4, epochs=epochs, learning_rate=0.01)
        return start_training(config, inputs)

    return started


def computed_by(training: Training) -> list[bytes]:
    """The images that the network computes from now on, without those that fill a batch: a list."""
    seen: list[bytes] = []

    def record(_: nn.Module, given: tuple[Tensor]) -> None:
        images = given[0].contiguous()
        seen.extend(image.numpy().tobytes() for image in images if image.std(dim=(1, 2)).any())

    training.engine.network.register_forward_pre_hook(record)
    return seen


def run(training: Training, batches: Batches) -> None:
    while not training.state.is_over:
        training.train_and_validate(batches)


def weights(training: Training) -> Tensor:
    return torch.cat(
        [value.flatten().double() for value in training.engine.network.state_dict().values()]
    )


@pytest.mark.parametrize("flips", [False, True])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_each_view_is_computed_once_and_the_training_is_the_same(
    begin: Begin, precision: str, flips: bool
) -> None:
    recipe = Recipe.from_mapping({"precision": precision})
    each_time, once = begin(recipe, flips), begin(recipe, flips)
    initial, all_images, images = weights(once), computed_by(each_time), computed_by(once)
    with uncached(each_time.engine) as batches:
        run(each_time, batches)
    with open_batches(once.engine, None) as batches:
        run(once, batches)
    assert len(all_images) == EPOCHS * (TRAINED + VALIDATED)
    assert sorted(images) == sorted(set(all_images))
    mirrored = len(images) - TRAINED - VALIDATED
    assert 0 < mirrored <= TRAINED if flips else mirrored == 0
    # Not to the bit: libraries may compute a last, smaller batch by another algorithm.
    assert torch.allclose(weights(once), weights(each_time), rtol=0, atol=1e-5)
    assert not torch.allclose(weights(once), initial, rtol=0, atol=1e-3)
    for own, other in zip(
        once.state.progress.history, each_time.state.progress.history, strict=True
    ):
        assert own["Train loss"] == pytest.approx(other["Train loss"], rel=1e-4)
        assert own["Valid loss"] == pytest.approx(other["Valid loss"], rel=1e-4)
        assert own["Train error"] == other["Train error"]
    assert once.state.progress.unreadable_images == each_time.state.progress.unreadable_images
    assert len(once.state.progress.unreadable_images) == 2
    assert torch.equal(once.state.margins.tensor()[:, 1:], each_time.state.margins.tensor()[:, 1:])


@pytest.mark.parametrize("lists", [False, True])
def test_a_run_resumed_within_an_epoch_computes_what_it_needs_and_ends_the_same(
    begin: Begin, lists: bool
) -> None:
    whole, resumed = (begin(is_pretrained_for_lists=lists) for _ in range(2))
    assert whole.engine.lr_factors.is_whitened is lists
    steps = []
    with open_batches(whole.engine, None) as batches:
        whole.train_and_validate(batches)
        whole.train(batches, lambda _: steps.append(take_snapshot(whole.engine, whole.state)))
        whole.validate(batches)
        whole.state.close_epoch(whole.engine.network)
        run(whole, batches)
    restore(resumed.engine, resumed.state, steps[1])
    images = computed_by(resumed)
    with open_batches(resumed.engine, None) as batches:
        run(resumed, batches)
    assert len(images) == len(set(images))
    assert torch.equal(weights(resumed), weights(whole))


def test_a_batch_may_lack_an_image_that_was_unreadable_for_an_earlier_one(tmp_path: Path) -> None:
    images = open_image_directory(paint_folders(tmp_path / "images", 2), "images")
    recipe, framing = decided_recipe(augmentation="none"), Framing(32, 32, 1.0)
    dataset = training_dataset(images, for_training(recipe, framing, framing), 1, 1)
    plan = [PlannedBatch(np.array(indices, np.int64), 2) for indices in ((0, 1), (2, 3), ())]
    current = EpochPlan("", plan, dataset, framing)
    views = Views(2, 3, 4)
    memory = memoryview(bytearray(len(images) * views.num_bytes))
    cache = FeatureCache(
        memory, views, torch.float32, lambda given: given.float().mean(dim=(2, 3)), 4
    )
    (at_once,) = cache.unknown_part(current).batches
    assert at_once.indices.tolist() == [0, 1, 2, 3]
    pixels, indices = torch.arange(3, dtype=torch.uint8), np.arange(3)
    computed = Batch(
        pixels.view(3, 1, 1, 1).expand(3, 3, 2, 2), pixels.long(), indices, 4, {3: "torn"}
    )
    first, second, nothing = cache.feature_batches(current, iter([computed]))
    assert first.images.tolist() == [[0.0] * 3, [1.0] * 3]
    assert (second.images.tolist(), second.indices.tolist(), second.unreadable) == (
        [[2.0] * 3],
        [2],
        {3: "torn"},
    )
    assert nothing.images.shape == (0, 3)
    assert [planned.indices.tolist() for planned in cache.unknown_part(current).batches] == [[3]]
    assert list(cache.unknown_part(replace(current, batches=[])).batches) == []


@pytest.mark.parametrize(
    ("recipe", "epochs", "text"),
    [
        (
            Recipe(),
            EPOCHS,
            "of the frozen backbone, once for each view, as it is and mirrored, then kept (0.",
        ),
        (Recipe(), 1, "of the frozen backbone, once: there is one epoch"),
        (
            Recipe(cutmix=0.5),
            EPOCHS,
            "of the frozen backbone, in every epoch: CutMix combines images",
        ),
        (
            Recipe(augmentation="padded-crop"),
            EPOCHS,
            "of the frozen backbone, in every epoch: each padded-crop differs",
        ),
        (
            Recipe(image_size=96, early_size=64),
            EPOCHS,
            "of the frozen backbone, in every epoch: the size of training images changes",
        ),
    ],
)
def test_the_plan_says_how_often_features_are_computed(
    begin: Begin, recipe: Recipe, epochs: int, text: str
) -> None:
    plan = begin(recipe, epochs=epochs).plan
    assert describe(plan, LearningRateFactors())["Features"].startswith(text)
    assert (plan.cache.views is not None) == ("kept" in text)


def test_without_mirroring_no_image_is_cached_and_without_memory_no_feature_is(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = begin(flips=False).plan
    assert (
        describe(plan, LearningRateFactors())["Decoding"]
        == "each image once: its features are kept"
    )
    assert len(plan.cache.features) == 21 * (256 * 4 + 1)
    monkeypatch.setattr(cache_budget, "available_memory", lambda: 4 * len(plan.cache.features) - 4)
    assert describe(begin(flips=False).plan, LearningRateFactors())["Features"].endswith(
        "memory is short"
    )


def test_a_frozen_backbone_drops_nothing() -> None:
    network = build("mobilenet_v3_small", False, 3)
    freeze_backbone(network, "mobilenet_v3_small")
    set_training_mode(network)
    assert not any(module.training for module in network.modules())
    network.requires_grad_(True)
    next(network.parameters()).requires_grad_(False)  # as the positions of some of timm's networks
    set_training_mode(network)
    assert all(module.training for module in network.modules())


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.class_name)
def test_the_last_layer_of_every_family_is_the_last_step(family: Family) -> None:
    with WithoutMemory():
        network = build(family.architectures[0], False, 3)
    side = family.image_size or 64
    width = width_of_features(network, family.head, side, side)
    assert width == network.get_submodule(family.head).in_features


def test_a_layer_that_is_not_the_last_step_has_no_features() -> None:
    layers = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
    )
    assert width_of_features(layers, "3", 8, 8) == 4
    assert width_of_features(nn.Sequential(layers, nn.Softmax(dim=1)), "0.3", 8, 8) is None
    assert width_of_features(nn.Sequential(nn.Linear(8, 4)), "0", 8, 8) is None  # of pixels
