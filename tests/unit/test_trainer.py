"""A trainer's epochs: image sizes, resuming, and the validation results of the best epoch."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision.models
from tests.painting import paint_folders
from torch import nn

from train_pytorch_model.commands.init_model import InitModel
from train_pytorch_model.data.chirality import with_flips_decided
from train_pytorch_model.data.loader import Loader
from train_pytorch_model.distributed.world import World
from train_pytorch_model.image_classifier.weights import read_state_dict
from train_pytorch_model.inputs.opening import open_training_inputs
from train_pytorch_model.loop.epoch_view import RunLength
from train_pytorch_model.loop.metrics import Metrics
from train_pytorch_model.loop.passes import NotFiniteError, StepReport
from train_pytorch_model.loop.train_state import Snapshot
from train_pytorch_model.loop.trainer import Trainer
from train_pytorch_model.measures.evaluation import Outcomes
from train_pytorch_model.stories.report import plan_of, stopped_early
from train_pytorch_model.words.config import TrainConfig
from train_pytorch_model.words.errors import ModuleOutOfMemoryError
from train_pytorch_model.words.recipe import Recipe

ALONE = World(rank=0, size=1, local_rank=0, local_size=1, device=torch.device("cpu"))
TRAINED = StepReport(step=1, lr=0.0, metrics=Metrics(0.0, 0.0, 0.0, 1), images_per_second=1.0)


@pytest.fixture
def trainer(tmp_path: Path) -> Trainer:
    """A trainer with 12 training and 9 validation images, the first of which cannot be decoded."""
    InitModel(
        output=tmp_path / "untrained", architecture="mobilenet_v3_small", recipe=Recipe(precision="float32")
    ).run()
    paint_folders(tmp_path / "training", 4)
    images = paint_folders(tmp_path / "validation", 3)
    truncated = images / "blue" / "0.png"
    truncated.write_bytes(truncated.read_bytes()[:-900])
    inputs = open_training_inputs(tmp_path / "untrained", tmp_path / "training", images)
    return Trainer(TrainConfig(batch_size=4, epochs=3), inputs, ALONE)


def test_training_images_can_be_smaller_than_validation_images(tmp_path: Path) -> None:
    recipe = Recipe(image_size=(64, 80), training_size=(32, 48), augmentation="random-resized-crop")
    InitModel(output=tmp_path / "untrained", architecture="mobilenet_v3_small", recipe=recipe).run()
    images = paint_folders(tmp_path / "images", 4)
    inputs = with_flips_decided(open_training_inputs(tmp_path / "untrained", images, images), ALONE)
    trainer = Trainer(TrainConfig(epochs=2), inputs, ALONE)
    assert plan_of(trainer)["Augmenting"] == "random-resized-crop and flip"
    assert plan_of(trainer)["Size"] == "64 x 80 px (the recipe says so), trained at 32 x 48"
    seen: list[tuple[bool, torch.Size]] = []
    trainer.network.register_forward_pre_hook(
        lambda network, given: seen.append((network.training, given[0].shape[2:]))
    )
    with trainer.loader(None) as loader:  # which caches decoded images
        for _ in range(2):
            trainer.close_epoch(trainer.train(loader, lambda _: None), trainer.validate(loader))
    assert set(seen) == {(True, (32, 48)), (False, (64, 80))}


def test_early_epochs_train_on_smaller_images(tmp_path: Path) -> None:
    recipe = Recipe(image_size=96, early_size=(64, 80), augmentation="random-resized-crop")
    InitModel(output=tmp_path / "untrained", architecture="mobilenet_v3_small", recipe=recipe).run()
    images = paint_folders(tmp_path / "images", 4)
    inputs = with_flips_decided(open_training_inputs(tmp_path / "untrained", images, images), ALONE)
    trainer = Trainer(TrainConfig(epochs=3), inputs, ALONE)
    sizes = "96 x 96 px (the recipe says so), trained at 64 x 80, from epoch 3 on at 96 x 96"
    assert plan_of(trainer)["Size"] == sizes
    seen: list[tuple[int, bool, tuple[int, ...]]] = []
    trainer.network.register_forward_pre_hook(
        lambda network, given: seen.append(
            (trainer.state.position.epoch, network.training, tuple(given[0].shape[2:]))
        )
    )
    with trainer.loader(None) as loader:  # which prefetches the first batches of the next epoch
        for _ in range(3):
            trainer.close_epoch(trainer.train(loader, lambda _: None), trainer.validate(loader))
    assert {each for each in seen if each[1]} == {
        (1, True, (64, 80)),
        (2, True, (64, 80)),
        (3, True, (96, 96)),
    }
    assert {size for _, is_training, size in seen if not is_training} == {(96, 96)}


def test_a_run_resumes_exactly_where_images_become_larger(tmp_path: Path) -> None:
    recipe = Recipe(image_size=96, early_size=64, augmentation="none", precision="float32")
    InitModel(output=tmp_path / "untrained", architecture="mobilenet_v3_small", recipe=recipe).run()
    images = paint_folders(tmp_path / "images", 4, size=(200, 160))  # cached at 180 x 144
    inputs = with_flips_decided(open_training_inputs(tmp_path / "untrained", images, images), ALONE)

    def begun() -> Trainer:
        return Trainer(TrainConfig(epochs=2, batch_size=4), inputs, ALONE)

    whole = begun()
    with whole.loader(None) as loader:
        whole.close_epoch(whole.train(loader, lambda _: None), whole.validate(loader))
        between = whole.state.snapshot()
        whole.state.patience.spent = whole.config.patience
        assert ", and images would have become 96 x 96 px; a larger --patience" in stopped_early(whole)
        whole.state.restore(between)
        whole.close_epoch(whole.train(loader, lambda _: None), whole.validate(loader))
    resumed = begun()
    resumed.state.restore(between)
    with resumed.loader(None) as loader:  # whose cache has nothing of the first epoch
        resumed.close_epoch(resumed.train(loader, lambda _: None), resumed.validate(loader))
    assert whole.state.best.epoch == resumed.state.best.epoch
    for name, value in whole.network.state_dict().items():
        assert torch.equal(resumed.network.state_dict()[name], value), name


def test_cutmix_boxes_are_the_same_after_a_resume_within_an_epoch(tmp_path: Path) -> None:
    InitModel(output=tmp_path / "untrained", architecture="mobilenet_v3_small").run()
    images = paint_folders(tmp_path / "images", 8)
    given = with_flips_decided(open_training_inputs(tmp_path / "untrained", images, images), ALONE)

    def begun(cutmix: float) -> Trainer:
        recipe = replace(given.recipe, cutmix=cutmix, precision="float32")
        return Trainer(TrainConfig(batch_size=4), replace(given, recipe=recipe), ALONE)

    def trained(trainer: Trainer) -> list[Snapshot]:
        steps: list[Snapshot] = []
        with trainer.loader(None) as loader:
            trainer.train(loader, lambda _: steps.append(trainer.state.snapshot()))
        return steps

    whole, resumed = trained(begun(0.5)), begun(0.5)
    assert "CutMix in 50% of the steps" in plan_of(resumed)["Augmenting"]
    resumed.state.restore(whole[2])
    again, without = trained(resumed), trained(begun(0.0))
    assert len(again) == len(whole) - 3 > 0
    for name, value in whole[-1].shared.items():
        assert torch.equal(again[-1].shared[name], value), name
    head = "network.classifier.3.weight"
    assert not torch.equal(without[-1].shared[head], whole[-1].shared[head])


def test_remaining_time_is_proportional_to_the_pixels() -> None:
    length = RunLength(images=8, pixels=[100, 100, 300], steps_per_epoch=2, is_on_cpu=True)
    assert [length.rest_s(epoch, step_s=1.0, waited_s=0.0) for epoch in (1, 2, 3)] == [8.0, 6.0, 0.0]
    assert [length.rest_s(epoch, step_s=1.0, waited_s=1.0) for epoch in (1, 2, 3)] == [4.0, 2.0, 0.0]


def columns(outcomes: Outcomes) -> list[list[float]]:
    return [column.tolist() for column in vars(outcomes).values()]


def test_results_of_the_best_epoch_keep_the_places_of_the_given_images(trainer: Trainer) -> None:
    with Loader(1) as loader:
        for loss in (2.0, 1.0):  # the second time without the image, and better
            validated = trainer.validate(loader)
            assert validated.images == 8
            trainer.close_epoch(TRAINED, Metrics(loss, validated.top1, validated.top5, 8))
        assert trainer.state.best.epoch == 2
        results = trainer.results_of_best("Report", loader, lambda: None)
    assert results.places.tolist() == list(range(1, 9))
    assert results.outcomes.targets.tolist() == trainer.inputs.validation.class_indices[1:].tolist()
    assert results.rejected == {}


def test_results_are_kept_until_the_report(trainer: Trainer) -> None:
    with Loader(1) as loader:
        validated = trainer.validate(loader)
        trainer.close_epoch(TRAINED, validated)
        kept = trainer.results_of_best("Report", loader, lambda: None)
        with torch.no_grad():
            for parameter in trainer.network.parameters():
                parameter.add_(1)
        trainer.validate(loader)
        trainer.close_epoch(TRAINED, Metrics(np.inf, 0.0, 0.0, 8))
        assert trainer.results_of_best("Report", loader, lambda: None) is kept
        trainer._results.clear()  # as in a resumed run
        again = trainer.results_of_best("Report", loader, lambda: None)
    assert again.places.tolist() == kept.places.tolist()
    # The batches lack the image rejected in the meantime, so the rounding differs.
    for first, second in zip(columns(kept.outcomes), columns(again.outcomes), strict=True):
        assert second == pytest.approx(first, rel=1e-6)


def test_running_out_of_memory_in_validation_is_reported_as_in_training(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(trainer.network, "forward", exhausted)
    with Loader(1) as loader, pytest.raises(ModuleOutOfMemoryError, match="4 images at once") as raised:
        trainer.validate(loader)
    assert raised.value.images_at_once == 2


@pytest.mark.parametrize("name", ["blue/1.png", "red/3.png"])  # also the last image
def test_an_epoch_resumed_in_its_validation_leaves_out_the_same_images(trainer: Trainer, name: str) -> None:
    torn = trainer.inputs.training.root / name
    torn.write_bytes(torn.read_bytes()[:-900])
    with Loader(1) as loader:
        trainer.train(loader, lambda _: None)
        state = trainer.state.snapshot()  # as in a checkpoint after the training part of the epoch
        left_out = list(trainer.state.position.left_out["training"])
        assert [trainer.inputs.training.file_names[place] for place in left_out] == [name]
        for _ in range(2):
            trainer.state.restore(state)
            trainer.train(loader, lambda _: None)
            assert trainer.state.position.left_out["training"] == left_out
            assert [bad.file_name for bad in trainer.state.position.bad_images] == [name]


def test_a_rollback_keeps_the_elapsed_time_and_halves_the_learning_rate(trainer: Trainer) -> None:
    good = trainer.state.snapshot()
    trainer.state.position.run_s = 3600.0
    trainer.roll_back(good, NotFiniteError("A loss"))
    assert trainer.state.position.run_s == 3600.0
    assert trainer.state.position.lr_factor == 0.5


@pytest.mark.parametrize(
    ("is_pretrained", "recipe", "shortened"),
    [
        (False, Recipe(), True),
        (True, Recipe(), False),
        (False, Recipe(freeze_backbone=True), False),  # the frozen backbone's batch norms are not trained
    ],
)
def test_only_weights_trained_from_scratch_are_rescaled(
    trainer: Trainer, tmp_path: Path, is_pretrained: bool, recipe: Recipe, shortened: bool
) -> None:
    first = torchvision.models.mobilenet_v3_small().state_dict()
    torch.save(first, tmp_path / "weights.pt")
    weights = tmp_path / "weights.pt" if is_pretrained else None
    InitModel(
        output=tmp_path / "model", architecture="mobilenet_v3_small", weights_file=weights, recipe=recipe
    ).run()
    inputs = open_training_inputs(
        tmp_path / "model", trainer.inputs.training.root, trainer.inputs.validation.root
    )
    given = read_state_dict(inputs.model.weights_path, 1 << 30)
    own = Trainer(trainer.config, inputs, trainer.world).network.state_dict()
    name = "features.0.0.weight"
    assert torch.equal(own[name], given[name]) is not shortened


def test_batch_norm_momentum_is_raised_for_short_epochs(trainer: Trainer) -> None:
    norms = [module for module in trainer.network.modules() if isinstance(module, nn.BatchNorm2d)]
    assert trainer.steps_per_epoch == 3
    assert {norm.momentum for norm in norms} == {0.3}
