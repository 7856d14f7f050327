"""`init-model`, and the effect of its options on training."""

import csv
import json
import math
import re
import urllib.request
from pathlib import Path

import pytest
import torch
import yaml

from tests.painting import paint_folders
from tests.programs.conftest import Trained
from tests.programs.program import assert_refused, read_weights, run_program, train_arguments
from tests.trainings import SMALL
from train_pytorch_model.image_classifier.architectures import build


def read_spec(directory: Path) -> dict[str, object]:
    """The `model_spec.yaml` of a model directory."""
    spec: dict[str, object] = yaml.safe_load((directory / "model_spec.yaml").read_text())
    return spec


def test_an_untrained_directory_holds_architecture_weights_and_recipe(tmp_path: Path) -> None:
    output = tmp_path / "model"
    ended = run_program(
        *(
            "init-model",
            "--architecture",
            "densenet121",
            "--memory-efficient",
            "--image-size",
            "64",
        ),
        *("--label-smoothing", "0.1", "--horizontal-flip", "False", "--balance-classes"),
        *("--mean", "0.1", "0.2", "0.3", "--std", "0.4", "0.5", "0.6", "--output", output),
    )
    assert (ended.status, ended.stderr) == (0, "")
    assert ended.stdout == f"The untrained densenet121 is in {output}\n"
    assert {path.name for path in output.iterdir()} == {"_meta.yaml", "model_spec.yaml", "model"}
    spec = read_spec(output)
    assert spec["flavor_extras"] == {
        "module": (
            "azureml.designer.modules.dl.pytorch.initialize_models.vision.classification.densenet"
        ),
        "class": "DenseNet",
        "is_cuda": False,
        "init_params": {"model_name": "densenet121", "pretrained": False, "memory_efficient": True},
    }
    assert spec["recipe"] == {
        "image_size": 64,
        "horizontal_flip": False,
        "label_smoothing": 0.1,
        "balance_classes": True,
        "mean": [0.1, 0.2, 0.3],
        "std": [0.4, 0.5, 0.6],
    }
    assert read_weights(output)["model.classifier.weight"].shape == (1000, 1024)


def test_a_weights_file_initializes_all_but_the_head(trained: Trained, tmp_path: Path) -> None:
    output = tmp_path / "model"
    given_weights = ("--weights-file", trained.output / "model")
    options = ("--architecture", SMALL, *given_weights, "--output", output, "--quiet")
    ended = run_program("init-model", *options)
    assert (ended.status, ended.stdout, ended.stderr) == (0, "", "")
    initial, given = read_weights(output), read_weights(trained.output)
    body = [name for name in given if not name.startswith("model.fc.")]
    assert len(body) == 90
    assert all(torch.equal(initial[name], given[name]) for name in body)
    assert initial["model.fc.weight"].shape == (1000, 96)


def test_pretrained_without_network_access_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "cache"))
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")  # nothing listens there
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(urllib.request, "_opener", None)  # another test's opener has other proxies
    ended = run_program("init-model", "--pretrained", "--output", tmp_path / "model")
    assert ended.status == 3
    message = ended.stderr[ended.stderr.index("FailedToDownloadFilesError: ") :]
    quiet = run_program("init-model", "--pretrained", "--output", tmp_path / "model", "--quiet")
    assert (quiet.status, quiet.stdout, quiet.stderr) == (3, "", message)
    assert 'Failed to download "https://download.pytorch.org/models/resnet18-' in message
    assert '.pth" due to internet error.' in message
    assert (
        "Download the file on a machine with network access, and name it with --weights-file; or"
        " train from" in message
    )
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "model").exists()


def test_downloaded_densenet_weights_with_old_parameter_names_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = build("densenet121", False, 1000).state_dict()
    old_name = re.compile(r"(denselayer\d+\.(?:norm|conv))([12]\.)")

    def download(url: str, path: str, sha256_start: str, progress: bool) -> None:
        assert (url.rpartition("-")[2], progress) == (f"{sha256_start}.pth", True)
        torch.save({old_name.sub(r"\1.\2", name): value for name, value in given.items()}, path)

    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(torch.hub, "download_url_to_file", download)
    output = tmp_path / "model"
    ended = run_program(
        "init-model", "--architecture", "densenet121", "--pretrained", "--output", output
    )
    assert (ended.status, ended.stderr) == (0, "")
    assert ended.stdout.startswith("Downloading https://download.pytorch.org/models/densenet121-")
    initial = read_weights(output)
    assert all(torch.equal(value, initial[f"model.{name}"]) for name, value in given.items())


@pytest.mark.parametrize(
    ("options", "texts"),
    [
        (
            ("--architecture", "vgg16"),
            ("--architecture vgg16 is not known. Known architectures: resnet18, ",),
        ),
        (
            ("--architecture", "efficientnet"),
            ("efficientnet is not known. Did you mean efficientnet_b0? Known architectures: ",),
        ),
        (
            ("--architecture", "resnet-18"),
            ("resnet-18 is not known. Did you mean resnet18? Known architectures: ",),
        ),
        (
            ("--architecture", "resnet18", "--memory-efficient"),
            ("--memory-efficient is an option of DenseNet, and --architecture is resnet18.",),
        ),
        (
            ("--architecture", "densenet121", "--zero-init-residual"),
            ("--zero-init-residual is an option of ResNet, and --architecture is densenet121.",),
        ),
        (
            ("--pretrained", "--weights-file", "weights"),
            ("--pretrained", "--weights-file are mutually exclusive. Give one."),
        ),
        (
            ("--architecture", "vit_b_16", "--image-size", "256", "--training-size", "160"),
            (
                "--image-size 256 does not fit: a vit_b_16 takes 224 px only.",
                "--training-size 160 does not fit: a vit_b_16 takes 224 px only.",
            ),
        ),
        (
            ("--training-size", "336"),
            (
                "--training-size 336 needs an --image-size at least as large: without one, the"
                " model predicts"
                " at 320",
            ),
        ),
        (
            ("--early-size", "336"),
            (
                "--early-size 336 needs an --image-size at least as large: without one, the"
                " model predicts at 320",
            ),
        ),
        (
            ("--architecture", "vit_b_16", "--weights", "IMAGENET1K_SWAG_E2E_V1"),  # for 384 px
            (
                "is not known for a vit_b_16 at 224 px. Known weights: IMAGENET1K_V1,"
                " IMAGENET1K_SWAG_LINEAR_V1.",
            ),
        ),
        (
            ("--weights-file", "missing"),
            ("--weights-file missing cannot be used: there is no such file.",),
        ),
        (("--weights-file", "."), ("--weights-file . is not a file. Name an existing",)),
        (
            (
                "--image-size",
                "4",
                "--label-smoothing",
                "1",
                "--crop-fraction",
                "0",
                "--mean",
                "1",
                "1",
                "2",
            ),
            ("image", "size", "smoothing", "crop", "fraction", "mean", "std"),
        ),
    ],
)
def test_wrong_options_are_refused(
    options: tuple[str, ...], texts: tuple[str, ...], tmp_path: Path
) -> None:
    ended = run_program("init-model", *options, "--output", tmp_path / "model")
    assert_refused(ended, 2, "ParameterError: ", *texts)
    assert not (tmp_path / "model").exists()


def test_a_value_outside_the_choices_is_refused(tmp_path: Path) -> None:
    ended = run_program("init-model", "--precision", "float64", "--output", tmp_path / "model")
    assert ended.status == 2
    assert "--precision" in ended.stderr
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("size", [("96x96",), ("96", "96", "3"), ("a",)])
def test_an_invalid_image_size_is_refused_in_plain_words(
    size: tuple[str, ...], tmp_path: Path
) -> None:
    ended = run_program("init-model", "--image-size", *size, "--output", tmp_path / "model")
    assert ended.status == 2
    told = " ".join(ended.stderr.replace("│", " ").split())
    assert (
        "Error parsing --image-size: expected a side in pixels, such as 96, or height and width"
        in told
    )
    assert not (tmp_path / "model").exists()


def test_training_leaves_a_frozen_backbone_unchanged(
    frozen: Trained, frozen_untrained: Path
) -> None:
    before, after = read_weights(frozen_untrained), read_weights(frozen.output)
    backbone = [name for name in before if not name.startswith("model.fc.")]
    assert len(backbone) == 90
    assert all(torch.equal(before[name], after[name]) for name in backbone)


def test_a_trained_model_is_trained_further_from_its_weights(
    frozen: Trained, folders: Path, tmp_path: Path
) -> None:
    output = tmp_path / "further"
    options = ("--epochs", "1", "--learning-rate", "1e-30", "--random-seed", "7")
    ended = run_program(*train_arguments(folders, frozen.output, output, *options))
    assert ended.status == 0, ended.stderr
    assert f"Model       trained {SMALL}, 3 categories\n" in ended.stdout
    before, after = read_weights(frozen.output), read_weights(output)
    assert list(before) == list(after)
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(
    ("option", "value"),
    [("balance_classes", "False"), ("balance_classes", "True"), ("label_smoothing", "0.3")],
)
def test_balancing_and_label_smoothing_change_the_training_loss(
    option: str, value: str, folders: Path, tmp_path: Path
) -> None:
    """At a learning rate of 1e-30 the weights stay: the loss can be recomputed from the scores."""
    training = tmp_path / "training"
    paint_folders(training, 2)
    paint_folders(tmp_path / "more", 5, categories=("blue",), first=50)
    for path in (tmp_path / "more" / "blue").iterdir():
        path.rename(training / "blue" / path.name)
    untrained, output = tmp_path / "untrained", tmp_path / "trained"
    run_program(
        *(
            "init-model",
            "--freeze-backbone",
            "--augmentation",
            "none",
            "--horizontal-flip",
            "False",
        ),
        *("--precision", "float32", f"--{option}", value, "--output", untrained),
    )
    options = ("--epochs", "1", "--learning-rate", "1e-30")
    ended = run_program(*train_arguments(folders, untrained, output, *options, training=training))
    assert ended.status == 0, ended.stderr
    run_program(
        *(
            "score",
            "--trained-model",
            output,
            "--dataset",
            training,
            "--scored-dataset",
            tmp_path / "scores",
        )
    )

    with (tmp_path / "scores" / "scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 11
    losses = []
    images_of = {"blue": 7, "green": 2, "red": 2}
    for row in rows:
        scores = {name: float(row[f"Scored Probabilities_{name}"]) for name in images_of}
        surprise = {name: -math.log(score) for name, score in scores.items()}
        if value == "True":
            frequent = {name: score * images_of[name] for name, score in scores.items()}
            losses.append(-math.log(frequent[row["category"]] / sum(frequent.values())))
        elif option == "label_smoothing":
            losses.append(0.7 * surprise[row["category"]] + 0.3 * sum(surprise.values()) / 3)
        else:
            losses.append(surprise[row["category"]])
    metrics = json.loads((output / "metrics.jsonl").read_text())
    assert metrics["Train loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-5)
