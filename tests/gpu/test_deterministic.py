"""`deterministic` on a GPU: two runs end with the same bits, also averaged by NCCL in one rank."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.gpu.test_cuda_graph_step import SIZES, make_step, trained
from tests.painting import paint_folders
from tests.ports import free_port

from train_pytorch_model.commands.init_model import InitModel
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.training.cuda_graph_step import CudaGraphStep
from train_pytorch_model.training.deterministic import deterministic
from train_pytorch_model.training.engine import uncompiled

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]

# In a process of its own: cuBLAS reads its workspace once. Prints two hashes of weights.
RUN = """
import hashlib, json, sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F

from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.distributed.rendezvous import join_world
from train_pytorch_model.image_classifier.architectures import build
from train_pytorch_model.inputs.opening import open_training_inputs
from train_pytorch_model.stories.train import train
from train_pytorch_model.training.deterministic import deterministic

untrained, images, output, port = sys.argv[1:]
root = Path(images)
inputs = open_training_inputs(Path(untrained), root / "training", root / "validation")
with join_world() as world:
    train(TrainConfig(epochs=3, learning_rate=0.01), inputs.with_flips(True), Path(output), world)
trained = hashlib.sha256((Path(output) / "model").read_bytes()).hexdigest()

dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
with deterministic():
    torch.manual_seed(0)
    network = build("resnet50", False, 10).cuda().to(memory_format=torch.channels_last)
    replicated = torch.nn.parallel.DistributedDataParallel(network, device_ids=[0])
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)
    generator = torch.Generator("cuda").manual_seed(1)
    for _ in range(5):
        batch = torch.rand(16, 3, 96, 96, device="cuda", generator=generator)
        with torch.autocast("cuda", torch.bfloat16):
            logits = replicated(batch.contiguous(memory_format=torch.channels_last))
        F.cross_entropy(logits.float(), torch.arange(16, device="cuda") % 10).backward()
        optimizer.step()
        optimizer.zero_grad()
averaged = hashlib.sha256()
for value in network.state_dict().values():
    averaged.update(value.cpu().numpy().tobytes())
dist.destroy_process_group()
print(json.dumps([trained, averaged.hexdigest()]))
"""


@pytest.mark.parametrize("architecture", ["resnet18", "convnext_tiny"])
def test_two_runs_end_with_the_same_bits(architecture: str, tmp_path: Path) -> None:
    untrained = tmp_path / "untrained"
    recipe = Recipe(deterministic=True, image_size=64, augmentation="random-resized-crop")
    InitModel(architecture=architecture, output=untrained, recipe=recipe).run()
    paint_folders(tmp_path / "training", 40)
    paint_folders(tmp_path / "validation", 6, first=100)
    hashes = []
    for run in range(2):
        arguments = (untrained, tmp_path, tmp_path / f"trained {run}", free_port())
        ended = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", RUN, *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        hashes.append(json.loads(ended.stdout.splitlines()[-1]))
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_replayed_steps_have_the_bits_of_eager_ones(precision: str) -> None:
    with deterministic():
        eager = CudaGraphStep(make_step(precision), uncompiled)
        eager._can_capture = False
        replayed = CudaGraphStep(make_step(precision), uncompiled)
        expected = trained(eager, eager._step.model, SIZES)
        found = trained(replayed, replayed._step.model, SIZES)
    assert eager._captured == {}
    assert len(replayed._captured) == 2
    for name, value in expected.items():
        assert torch.equal(found[name], value), name
