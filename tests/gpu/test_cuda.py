"""Training and inference on a CUDA device: its precision, and the same results as on the CPU."""

import base64
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.painting import paint_folders

from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.distributed.rendezvous import join_world
from train_pytorch_model.image_classifier.classifier import ImageClassifier
from train_pytorch_model.inputs.opening import open_training_inputs
from train_pytorch_model.inputs.scoring import open_scoring_inputs
from train_pytorch_model.networks.build import build_model
from train_pytorch_model.stories.train import train
from train_pytorch_model.training.optimizer import make_optimizer
from train_pytorch_model.training.precision import choose_precision

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, untrained_resnet18: Path) -> Path:
    """A model trained on the GPU to classify three colours."""
    root = tmp_path_factory.mktemp("gpu")
    training = paint_folders(root / "training", 20)
    validation = paint_folders(root / "validation", 6, first=100)
    inputs = open_training_inputs(untrained_resnet18, training, validation).with_flips(True)
    with join_world() as world:
        assert world.device.type == "cuda"
        train(TrainConfig(epochs=3, learning_rate=0.01), inputs, root / "trained", world)
    return root / "trained"


def test_a_model_trained_on_the_gpu_predicts_the_same_on_the_cpu(trained: Path) -> None:
    inputs = open_scoring_inputs(trained, trained.parent / "validation")
    pixels = torch.from_numpy(
        np.stack([np.asarray(_image(inputs.images.path(i))) for i in range(len(inputs.images))])
    )
    results = []
    for device in ("cpu", "cuda"):
        network = build_model(inputs.model, inputs.spec.categories)
        classifier = ImageClassifier(inputs.spec, network, torch.device(device))
        results.append(classifier.predict(pixels)[0])
    on_cpu, on_gpu = results
    np.testing.assert_allclose(on_gpu, on_cpu, atol=1e-3)
    assert (on_gpu.argmax(axis=1) == inputs.images.class_indices).mean() > 0.9


def test_auto_precision_is_the_best_the_device_supports() -> None:
    device = torch.device("cuda", 0)
    is_ampere = torch.cuda.get_device_capability(device) >= (8, 0)
    assert choose_precision("auto", device).dtype is (
        torch.bfloat16 if is_ampere else torch.float16
    )


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_a_float16_step_trains_without_synchronizing() -> None:
    device = torch.device("cuda", 0)
    precision = choose_precision("float16", device)
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten())
    network.append(torch.nn.Linear(8 * 6 * 6, 2))
    network.to(device)
    optimizer, scaler = make_optimizer(network), precision.scaler(device)
    images, targets = torch.randn(16, 3, 8, 8, device=device), torch.arange(16, device=device) % 2
    optimizer.param_groups[0]["lr"] = optimizer.param_groups[1]["lr"] = 0.05
    losses = []
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(40):
            with precision.autocast(device):
                loss = torch.nn.functional.cross_entropy(network(images).float(), targets)
            scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.detach())
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert losses[-1].item() < 0.5 * losses[0].item()


def test_the_trained_directory_serves_from_the_gpu(trained: Path) -> None:
    import mlflow.pyfunc
    import pandas as pd

    file = next((trained.parent / "validation" / "red").iterdir())
    text = base64.b64encode(file.read_bytes()).decode()
    predicted = mlflow.pyfunc.load_model(str(trained)).predict(pd.DataFrame({"image": [text]}))
    assert predicted["Scored Labels"].tolist() == ["red"]


def _image(path: Path) -> np.ndarray:
    from PIL import Image

    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))
