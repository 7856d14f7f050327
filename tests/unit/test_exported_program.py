"""Weights read from a torch.export program without loading the program."""

import json
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from train_pytorch_model.image_classifier.weights import WeightsError
from train_pytorch_model.networks.exported_program import CONFIG, is_exported_program, read_exported_weights
from train_pytorch_model.networks.models import without_common_prefix

LIMIT = 1 << 20


class Wrapped(nn.Module):
    """A network inside another module, as in an exported program."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(B, 3, H, W) → (B, 4, H - 2, W - 2)."""
        found: torch.Tensor = self.inner(images)
        return found


@pytest.fixture(scope="module")
def network() -> nn.Module:
    torch.manual_seed(5)
    network = Wrapped().eval()
    network.inner.to(memory_format=torch.channels_last)  # non-default strides
    return network


@pytest.fixture(scope="module")
def program(network: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program as torch.export saves it."""
    path = tmp_path_factory.mktemp("program") / "program.pt2"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(network, (torch.zeros(2, 3, 8, 8),)), path)
    return path


def changed(program: Path, path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A copy of the program with a changed list of weights."""
    with zipfile.ZipFile(program) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if name.endswith(CONFIG):
                document = json.loads(data)
                change(document["config"])
                data = json.dumps(document).encode()
            target.writestr(name, data)
    return path


def test_parameters_and_buffers_are_read_as_they_are(program: Path, network: nn.Module) -> None:
    assert is_exported_program(program)
    state = read_exported_weights(program, LIMIT)
    expected = network.state_dict()
    assert state.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(state[name], value)
        assert state[name].dtype == value.dtype


def test_a_wrapper_around_the_network_is_removed(program: Path, network: nn.Module) -> None:
    state = read_exported_weights(program, LIMIT) | {"mean": torch.zeros(3)}
    inner = {name.removeprefix("inner.") for name in network.state_dict()}
    assert without_common_prefix(state, inner).keys() == inner
    assert without_common_prefix(state, {"head.weight"}) is state


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"no zip"])
def test_other_files_are_not_programs(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "file").write_bytes(data)
    assert not is_exported_program(tmp_path / "file")
    assert not is_exported_program(tmp_path / "missing")


def test_a_state_dict_is_not_a_program(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(1)}, tmp_path / "model")
    assert not is_exported_program(tmp_path / "model")


def test_more_bytes_than_the_network_can_have_are_not_read(program: Path) -> None:
    with pytest.raises(
        WeightsError, match=r"^the file has [\d,]+ bytes; the architecture has at most 1,000\.$"
    ):
        read_exported_weights(program, 1000)


def test_a_program_of_an_older_torch_says_what_to_do(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "old.pt2", "w") as archive:
        archive.writestr("old/models/model.json", "{}")
    assert is_exported_program(tmp_path / "old.pt2")
    with pytest.raises(
        WeightsError, match=r"older torch\.export, whose weights are pickled\. Save its state"
    ):
        read_exported_weights(tmp_path / "old.pt2", LIMIT)


NAME = "inner.0.bias"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda config: config[NAME].update(use_pickle=True), "not stored as plain numbers"),
        (lambda config: config[NAME]["tensor_meta"].update(dtype=9), "not stored as plain numbers"),
        (lambda config: config[NAME].update(path_name="../../secret"), "damaged file of torch.export"),
        (lambda config: config[NAME].pop("path_name"), "damaged file of torch.export"),
        (
            lambda config: config[NAME]["tensor_meta"].update(
                sizes=[{"as_int": 1 << 40}], strides=[{"as_int": 0}]
            ),
            "damaged file of torch.export",
        ),
        (
            lambda config: config[NAME]["tensor_meta"].update(storage_offset={"as_int": 1 << 40}),
            "damaged file of torch.export",
        ),
        (
            lambda config: config[NAME]["tensor_meta"].update(sizes=[{"as_int": -4}]),
            "damaged file of torch.export",
        ),
        (
            lambda config: config[NAME]["tensor_meta"].update(
                sizes=[{"as_int": 0}, {"as_int": 1 << 70}], strides=[{"as_int": 1}, {"as_int": 1}]
            ),
            "damaged file of torch.export",
        ),
    ],
)
def test_an_invalid_list_of_weights_is_refused(
    program: Path, tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    path = changed(program, tmp_path / "changed.pt2", change)
    with pytest.raises(WeightsError, match=message):
        read_exported_weights(path, LIMIT)


def test_a_decompression_bomb_is_not_unpacked(program: Path, tmp_path: Path) -> None:
    with (
        zipfile.ZipFile(program) as source,
        zipfile.ZipFile(tmp_path / "bomb.pt2", "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in source.namelist():
            target.writestr(name, bytes(64 << 20) if name.endswith("weight_0") else source.read(name))
    with pytest.raises(WeightsError, match=r"^it unpacks to more than the architecture has\.$"):
        read_exported_weights(tmp_path / "bomb.pt2", LIMIT)


def test_a_damaged_file_is_refused(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "half.pt2"
    data = bytearray(program.read_bytes())
    place = data.index(b"weight_0") + 200
    data[place : place + 400] = bytes(400)
    path.write_bytes(data)
    with pytest.raises(WeightsError, match=r"damaged file of torch\.export"):
        read_exported_weights(path, LIMIT)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_compressed_file_with_damaged_data_is_refused(program: Path, tmp_path: Path, method: int) -> None:
    path = tmp_path / "damaged.pt2"
    with zipfile.ZipFile(program) as source, zipfile.ZipFile(path, "w", method) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
        place = next(info for info in target.infolist() if info.filename.endswith(CONFIG))
    data = bytearray(path.read_bytes())
    start = place.header_offset + 30 + len(place.filename.encode())
    end = start + place.compress_size
    data[start + 9 : end] = b"\xff" * (end - start - 9)
    path.write_bytes(data)
    with pytest.raises(WeightsError, match=r"damaged file of torch\.export"):
        read_exported_weights(path, LIMIT)
