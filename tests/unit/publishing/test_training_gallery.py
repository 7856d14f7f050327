"""The report's batch of training images: prepared as the recipe says, with their targets."""

import base64
import io
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from tests.painting import paint_folders
from tests.trainings import ALONE

from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.inputs.opening import open_training_inputs
from train_pytorch_model.publishing.training_gallery import MAX_IMAGES, training_gallery
from train_pytorch_model.training.plan import Plan, make_plan


def plan_of(untrained: Path, folders: Path, cutmix: float) -> Plan:
    """The plan of a training on painted images."""
    inputs = open_training_inputs(untrained, folders, folders).with_flips(True)
    inputs = replace(inputs, recipe=replace(inputs.recipe, cutmix=cutmix))
    return make_plan(TrainConfig(batch_size=32), inputs, ALONE)


@pytest.mark.parametrize("cutmix", [0.0, 0.5])
def test_a_batch_has_pictures_of_the_training_size_and_targets(
    tmp_path: Path, untrained_resnet18: Path, cutmix: float
) -> None:
    plan = plan_of(untrained_resnet18, paint_folders(tmp_path / "images", 4), cutmix)
    images = plan.inputs.training
    gallery = training_gallery(plan, images)
    assert len(gallery.cards) == min(MAX_IMAGES, len(images))
    assert ("CutMix, as in 50% of the steps" in gallery.text) == (cutmix > 0)
    for card in gallery.cards:
        (source,) = card.pictures
        shown = Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2])))
        assert shown.size == (plan.framings[-1].width, plan.framings[-1].height)
        (file,) = card.files
        names = [fact.name for fact in card.facts]
        assert images.categories[images.class_indices[images.file_names.index(file)]] in names
        assert len(names) in ((1, 2) if cutmix else (1,))
        percents = [float(fact.detail.rstrip("%")) for fact in card.facts if fact.detail]
        assert sum(percents) == pytest.approx(100 if cutmix else 0, abs=1)
    assert (max(len(card.facts) for card in gallery.cards) == 2) == (cutmix > 0)


def test_images_that_are_gone_are_left_out(tmp_path: Path, untrained_resnet18: Path) -> None:
    plan = plan_of(untrained_resnet18, paint_folders(tmp_path / "images", 1), 0.0)
    images = plan.inputs.training
    images.path(0).unlink()
    assert len(training_gallery(plan, images).cards) == len(images) - 1
    for index in range(1, len(images)):
        images.path(index).unlink()
    gallery = training_gallery(plan, images)
    assert (gallery.cards, gallery.text) == ([], "The images can no longer be read.")
