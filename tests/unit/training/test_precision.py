"""The precision of a training step."""

import pytest
import torch

from train_pytorch_model.training import precision
from train_pytorch_model.training.precision import choose_precision

CPU = torch.device("cpu")
CUDA = torch.device("cuda", 0)
FORMATS = [("float32", torch.float32), ("bfloat16", torch.bfloat16), ("float16", torch.float16)]


@pytest.mark.parametrize(("requested", "dtype"), FORMATS)
@pytest.mark.parametrize("device", [CPU, CUDA], ids=["cpu", "cuda"])
def test_the_recipes_precision_is_used_on_any_hardware(
    requested: str, dtype: torch.dtype, device: torch.device
) -> None:
    chosen = choose_precision(requested, device)
    assert chosen.dtype == dtype
    assert str(chosen) == f"{requested} (the recipe says so)"


@pytest.mark.parametrize(
    ("has_bfloat16", "text"),
    [
        (True, "bfloat16 (this CPU computes it in hardware)"),
        (False, "float32 (this CPU has no bfloat16)"),
    ],
)
def test_a_cpu_uses_bfloat16_if_the_hardware_has_it(
    monkeypatch: pytest.MonkeyPatch, has_bfloat16: bool, text: str
) -> None:
    monkeypatch.setattr(precision, "cpu_has_bfloat16", lambda: has_bfloat16)
    assert str(choose_precision("auto", CPU)) == text


@pytest.mark.parametrize(
    ("capability", "text"),
    [
        ((6, 1), "float32 (Card has neither bfloat16 nor float16)"),
        ((7, 0), "float16 (Card computes it in hardware, but not bfloat16)"),
        ((7, 5), "float16 (Card computes it in hardware, but not bfloat16)"),
        ((8, 0), "bfloat16 (Card computes it in hardware)"),
        ((9, 0), "bfloat16 (Card computes it in hardware)"),
    ],
)
def test_a_gpu_uses_the_best_precision_that_its_hardware_has(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], text: str
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Card")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert str(choose_precision("auto", CUDA)) == text


@pytest.mark.parametrize(("requested", "dtype"), FORMATS)
def test_a_forward_pass_computes_in_the_chosen_precision(
    requested: str, dtype: torch.dtype
) -> None:
    with choose_precision(requested, CPU).autocast(CPU):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype
