"""Tensor files, written piece by piece, are valid safetensors."""

import sys

import pytest
import safetensors.torch
import torch

from train_pytorch_model.training import checkpoint_files
from train_pytorch_model.training.checkpoint_files import tensor_file


def test_safetensors_reads_a_tensor_file() -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = {
        f"{number} “{dtype}” \n": (torch.rand(2, 3, generator=generator) * 100 - 50).to(dtype)
        for number, dtype in enumerate(checkpoint_files._DTYPES)
    }
    tensors |= {
        "none": torch.empty(0, 4),
        "one": torch.tensor(5, dtype=torch.int64),
        "": torch.ones(1),
    }
    read = safetensors.torch.load(b"".join(tensor_file(tensors)))
    assert read.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert read[name].dtype == tensor.dtype
        assert torch.equal(read[name], tensor)


def test_a_file_without_tensors_is_valid() -> None:
    assert safetensors.torch.load(b"".join(tensor_file({}))) == {}


def test_tensors_are_not_copied() -> None:
    tensor = torch.zeros(4)
    _, piece = tensor_file({"tensor": tensor})
    tensor += 1
    assert bytes(piece) == torch.ones(4).numpy().tobytes()


def test_data_are_aligned_to_their_item_size() -> None:
    header, *pieces = tensor_file({"a": torch.ones(3, dtype=torch.uint8), "b": torch.ones(1)})
    assert len(header) % 8 == 0
    assert [len(piece) for piece in pieces] == [4, 3]


def test_a_tensor_that_is_not_contiguous_is_refused() -> None:
    with pytest.raises(RuntimeError):
        tensor_file({"turned": torch.ones(2, 3).T})


def test_memory_of_the_other_byte_order_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "byteorder", "big")
    with pytest.raises(AssertionError):
        tensor_file({"a": torch.ones(1)})
