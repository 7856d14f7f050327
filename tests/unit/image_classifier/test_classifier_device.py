"""Which device is taken, by a table of what a machine may have; sums stay exact on it."""

import pytest
import torch

from train_pytorch_model.image_classifier.classifier import best_device, exact_device
from train_pytorch_model.training.precision import choose_precision


@pytest.mark.parametrize(
    ("accelerator", "expected"),
    [(None, "cpu"), ("cuda", "cuda:1"), ("xpu", "xpu"), ("mps", "mps"), ("hpu", "cpu")],
)
def test_accelerators_are_taken_when_they_are_there(
    accelerator: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = None if accelerator is None else torch.device(accelerator)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: found)  # noqa: ARG005
    assert best_device(local_rank=1) == torch.device(expected)


def test_this_machine_has_a_device() -> None:
    assert best_device().type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_sums_of_mps_are_kept_on_the_cpu() -> None:
    assert [exact_device(torch.device(name)).type for name in ("mps", "xpu", "cpu")] == [
        "cpu",
        "xpu",
        "cpu",
    ]


def test_other_accelerators_compute_in_float32() -> None:
    assert choose_precision("auto", torch.device("mps")).dtype == torch.float32
    assert choose_precision("bfloat16", torch.device("xpu")).dtype == torch.bfloat16
