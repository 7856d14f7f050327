"""Epochs: image sizes, resuming, and the validation results of the best one."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision.models
from tests.painting import paint_folders
from tests.trainings import ALONE, TINY, Training, start_training, uncached
from torch import nn

from train_pytorch_model.commands.init_model import InitModel
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.data.pixel_decisions import decide_flips
from train_pytorch_model.errors import ModuleOutOfMemoryError
from train_pytorch_model.image_classifier.weights import read_state_dict
from train_pytorch_model.inputs.opening import open_training_inputs
from train_pytorch_model.machine.stop_requests import StopRequests
from train_pytorch_model.publishing.report import stopped_early
from train_pytorch_model.training.batches import open_batches
from train_pytorch_model.training.epoch import report_every, validate_best
from train_pytorch_model.training.metrics import Metrics
from train_pytorch_model.training.plan_text import describe
from train_pytorch_model.training.saver import NotFiniteError, Saver
from train_pytorch_model.training.snapshot import Snapshot, restore, take_snapshot
from train_pytorch_model.training.state import StepReport

TRAINED = StepReport(step=1, lr=0.0, metrics=Metrics(0.0, 0.0, 0.0, 1), images_per_second=1.0)


@pytest.fixture
def training(tmp_path: Path) -> Training:
    """A training of 12 training and 9 validation images, of which the first cannot be decoded."""
    recipe = Recipe(precision="float32", image_size=32)
    InitModel(output=tmp_path / "untrained", architecture=TINY, recipe=recipe).run()
    paint_folders(tmp_path / "training", 4)
    images = paint_folders(tmp_path / "validation", 3)
    truncated = images / "blue" / "0.png"
    truncated.write_bytes(truncated.read_bytes()[:-900])
    inputs = open_training_inputs(tmp_path / "untrained", tmp_path / "training", images).with_flips(
        True
    )
    return start_training(TrainConfig(batch_size=4, epochs=3), inputs)


def test_training_images_can_be_smaller_than_validation_images(tmp_path: Path) -> None:
    recipe = Recipe(image_size=(64, 80), training_size=(32, 48), augmentation="random-resized-crop")
    InitModel(output=tmp_path / "untrained", architecture=TINY, recipe=recipe).run()
    images = paint_folders(tmp_path / "images", 4)
    inputs = decide_flips(open_training_inputs(tmp_path / "untrained", images, images), ALONE)
    training = start_training(TrainConfig(epochs=2), inputs)
    assert (
        describe(training.plan, training.engine.lr_factors)["Augmenting"]
        == "random-resized-crop and flip"
    )
    assert (
        describe(training.plan, training.engine.lr_factors)["Size"]
        == "64 x 80 px (the recipe says so; centre crops show 61% of an image), trained at 32 x 48"
    )
    seen: list[tuple[bool, torch.Size]] = []
    training.engine.network.register_forward_pre_hook(
        lambda network, given: seen.append((network.training, given[0].shape[2:]))
    )
    with open_batches(training.engine, None) as batches:  # which caches decoded images
        for _ in range(2):
            training.train_and_validate(batches)
    assert set(seen) == {(True, (32, 48)), (False, (64, 80))}


def test_early_epochs_train_on_smaller_images(tmp_path: Path) -> None:
    recipe = Recipe(image_size=96, early_size=(64, 80), augmentation="random-resized-crop")
    InitModel(output=tmp_path / "untrained", architecture=TINY, recipe=recipe).run()
    images = paint_folders(tmp_path / "images", 4)
    inputs = decide_flips(open_training_inputs(tmp_path / "untrained", images, images), ALONE)
    training = start_training(TrainConfig(epochs=3), inputs)
    sizes = describe(training.plan, training.engine.lr_factors)["Size"]
    assert sizes.endswith("77% of an image), trained at 64 x 80, from epoch 3 on at 96 x 96")
    seen: list[tuple[int, bool, tuple[int, ...]]] = []
    training.engine.network.register_forward_pre_hook(
        lambda network, given: seen.append(
            (training.state.progress.epoch, network.training, tuple(given[0].shape[2:]))
        )
    )
    # They prefetch the first batches of the next epoch.
    with open_batches(training.engine, None) as batches:
        for _ in range(3):
            training.train_and_validate(batches)
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
    inputs = decide_flips(open_training_inputs(tmp_path / "untrained", images, images), ALONE)

    def begun() -> Training:
        return start_training(TrainConfig(epochs=2, batch_size=4), inputs)

    whole = begun()
    with open_batches(whole.engine, None) as batches:
        whole.train_and_validate(batches)
        between = take_snapshot(whole.engine, whole.state)
        whole.state.progress.history[0]["Valid loss"] = math.inf
        impatient = replace(whole.plan, config=replace(whole.plan.config, patience=1))
        assert ", and images would have become 96 x 96 px; a larger --patience" in stopped_early(
            impatient, whole.state
        )
        restore(whole.engine, whole.state, between)
        whole.train_and_validate(batches)
    resumed = begun()
    restore(resumed.engine, resumed.state, between)
    # Their cache has nothing of the first epoch.
    with open_batches(resumed.engine, None) as batches:
        resumed.train_and_validate(batches)
    assert whole.state.best.epoch == resumed.state.best.epoch
    for name, value in whole.engine.network.state_dict().items():
        assert torch.equal(resumed.engine.network.state_dict()[name], value), name


def test_cutmix_boxes_are_the_same_after_a_resume_within_an_epoch(tmp_path: Path) -> None:
    InitModel(output=tmp_path / "untrained", architecture=TINY, recipe=Recipe(image_size=32)).run()
    images = paint_folders(tmp_path / "images", 8)
    given = decide_flips(open_training_inputs(tmp_path / "untrained", images, images), ALONE)

    def begun(cutmix: float) -> Training:
        recipe = replace(given.recipe, cutmix=cutmix, precision="float32")
        return start_training(TrainConfig(batch_size=4), replace(given, recipe=recipe))

    def trained(training: Training) -> list[Snapshot]:
        steps: list[Snapshot] = []
        with open_batches(training.engine, None) as batches:
            training.train(
                batches, lambda _: steps.append(take_snapshot(training.engine, training.state))
            )
        return steps

    whole, resumed = trained(begun(0.5)), begun(0.5)
    assert (
        "CutMix in 50% of the steps"
        in describe(resumed.plan, resumed.engine.lr_factors)["Augmenting"]
    )
    restore(resumed.engine, resumed.state, whole[2])
    again, without = trained(resumed), trained(begun(0.0))
    assert len(again) == len(whole) - 3 > 0
    for name, value in whole[-1].shared.items():
        assert torch.equal(again[-1].shared[name], value), name
    head = "network.classifier.weight"
    assert not torch.equal(without[-1].shared[head], whole[-1].shared[head])


def close(training: Training, validated: Metrics) -> None:
    """Close the open epoch as if it had been trained, and validated with this result."""
    training.state.trained, training.state.validated = TRAINED, validated
    training.state.close_epoch(training.engine.network)


def columns(outcomes: object) -> list[list[float]]:
    return [column.tolist() for column in vars(outcomes).values()]


def test_results_of_the_best_epoch_keep_the_places_of_the_given_images(training: Training) -> None:
    with uncached(training.engine) as batches:
        for loss in (2.0, 1.0):  # the second time without the image, and better
            validated = training.validate(batches)
            assert validated.images == 8
            close(training, Metrics(loss, validated.top1, validated.top5, 8))
    assert training.state.best.epoch == 2
    results = training.state.results[2]
    assert results.indices.tolist() == list(range(1, 9))
    assert (
        results.outcomes.targets.tolist()
        == training.plan.inputs.validation.class_indices[1:].tolist()
    )
    assert results.unreadable == {}


def test_margins_count_up_to_the_best_epoch_and_in_the_first_three(training: Training) -> None:
    counted = []
    for loss in (1.0, 2.0, 2.0, 2.0, 0.5, 2.0):
        epoch = training.state.progress.epoch
        margin = torch.tensor([[1], [0]], dtype=torch.int32)
        training.state.margins.add(np.array([0]), epoch, margin)
        close(training, Metrics(loss, 0.0, 0.0, 8))
        counted.append(int(training.state.margins.tensor()[1, 1, 0]))
    assert counted == [1, 2, 3, 3, 5, 5]


def test_results_are_kept_until_the_report(training: Training) -> None:
    network = training.engine.network
    with uncached(training.engine) as batches:
        close(training, training.validate(batches))
        kept = training.state.results[1]
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(1)
        training.validate(batches)
        close(training, Metrics(np.inf, 0.0, 0.0, 8))
        assert training.state.results == {1: kept}
        training.state.results.clear()  # as in a resumed run
        for _ in validate_best(training.engine, training.state, batches.validation(training.state)):
            pass
        again = training.state.results[1]
    assert again.indices.tolist() == kept.indices.tolist()
    # The batches lack the image that could not be read, so the rounding differs.
    for first, second in zip(columns(kept.outcomes), columns(again.outcomes), strict=True):
        assert second == pytest.approx(first, rel=1e-6)


def test_running_out_of_memory_in_validation_is_reported_as_in_training(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(training.engine.network, "forward", exhausted)
    with (
        uncached(training.engine) as batches,
        pytest.raises(ModuleOutOfMemoryError, match="4 images at once") as raised,
    ):
        training.validate(batches)
    assert raised.value.images_at_once == 2


@pytest.mark.parametrize("name", ["blue/1.png", "red/3.png"])  # also the last image
def test_an_epoch_resumed_in_its_validation_leaves_out_the_same_images(
    training: Training, name: str
) -> None:
    torn = training.plan.inputs.training.root / name
    torn.write_bytes(torn.read_bytes()[:-900])
    with uncached(training.engine) as batches:
        training.train(batches)
        # As in a checkpoint after the training part of the epoch.
        state = take_snapshot(training.engine, training.state)
        unreadable = list(training.state.progress.unreadable_indices["training"])
        assert [training.plan.inputs.training.file_names[place] for place in unreadable] == [name]
        for _ in range(2):
            restore(training.engine, training.state, state)
            training.train(batches)
            assert training.state.progress.unreadable_indices["training"] == unreadable
            assert [image.file_name for image in training.state.progress.unreadable_images] == [
                name
            ]


def test_a_rollback_keeps_the_elapsed_time_and_halves_the_learning_rate(
    training: Training, tmp_path: Path
) -> None:
    with Saver(tmp_path, 1e9, training.engine, training.state, StopRequests(), print) as saver:
        training.state.progress.run_s = 3600.0
        training.state.progress.steps_done = 2
        saver.roll_back(NotFiniteError("A loss"))
    progress = training.state.progress
    assert progress.run_s >= 3600.0
    assert (progress.lr_factor, progress.rollbacks, progress.steps_done) == (0.5, 1, 0)


@pytest.mark.parametrize(
    ("print_frequency", "steps_per_epoch", "every"),
    [(10, 200, 10), (10, 75, 5), (10, 8, 1), (10, 1, 1), (7, 30, 1), (1000, 999, 50)],
)
def test_a_report_is_due_ten_times_an_epoch_and_with_every_log_line(
    print_frequency: int, steps_per_epoch: int, every: int
) -> None:
    assert report_every(print_frequency, steps_per_epoch) == every


def test_an_image_that_is_left_out_is_taken_away_once(training: Training) -> None:
    before = training.state.images["training"]
    assert training.state.images["training"] is before
    training.state.leave_out("training", {3: "torn"})
    after = training.state.images["training"]
    assert len(after) == len(before) - 1
    assert training.state.images["training"] is after


@pytest.mark.parametrize(
    ("is_pretrained", "recipe", "shortened"),
    [
        (False, Recipe(), True),
        (True, Recipe(), False),
        # The batch norms of a frozen backbone are not trained.
        (False, Recipe(freeze_backbone=True), False),
    ],
)
def test_only_weights_trained_from_scratch_are_rescaled(
    training: Training, tmp_path: Path, is_pretrained: bool, recipe: Recipe, shortened: bool
) -> None:
    first = torchvision.models.mobilenet_v3_small().state_dict()
    torch.save(first, tmp_path / "weights.pt")
    weights = tmp_path / "weights.pt" if is_pretrained else None
    InitModel(
        output=tmp_path / "model",
        architecture="mobilenet_v3_small",
        weights_file=weights,
        recipe=recipe,
    ).run()
    inputs = open_training_inputs(
        tmp_path / "model", training.plan.inputs.training.root, training.plan.inputs.validation.root
    )
    given = read_state_dict(inputs.model.weights_path, 1 << 30)
    own = start_training(training.plan.config, inputs.with_flips(True)).engine.network.state_dict()
    name = "features.0.0.weight"
    assert torch.equal(own[name], given[name]) is not shortened


def test_batch_norm_momentum_is_raised_for_short_epochs(training: Training) -> None:
    norms = [
        module for module in training.engine.network.modules() if isinstance(module, nn.BatchNorm2d)
    ]
    assert training.plan.steps_per_epoch == 3
    assert {norm.momentum for norm in norms} == {0.3}


def test_an_epoch_without_remaining_steps_reports_its_last_learning_rate(
    training: Training,
) -> None:
    progress = training.state.progress
    progress.images_done, progress.steps_done, progress.lr_factor = 12, 3, 0.5
    with uncached(training.engine) as batches:
        report = training.train(batches)
    assert report.lr == training.plan.learning_rate(epoch=1, step=2, rollback_factor=0.5)
    assert report.lr == 0.001 * (1 - 2 / 9) ** 2 / 2
