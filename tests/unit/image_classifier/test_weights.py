"""Weights files: reading them, what is refused, and the designer's second head."""

import copy
import os
import pickle
import warnings
import zipfile
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.weights_files import saved, with_prefix
from torch import Tensor, nn

from train_pytorch_model.image_classifier.architectures import build
from train_pytorch_model.image_classifier.classifier import ImageClassifier, max_bytes
from train_pytorch_model.image_classifier.spec import ClassifierSpec, Framing
from train_pytorch_model.image_classifier.weights import (
    WeightsError,
    fold_extra_head,
    read_state_dict,
)

LIMIT = 1 << 30
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n"
CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


# ── Reading a weights file ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "legacy format"])
def test_a_state_dict_is_read_without_its_prefix(tmp_path: Path, is_zip: bool) -> None:
    state = OrderedDict({"model.fc.weight": torch.eye(2), "out_linear_model.bias": torch.ones(2)})
    path = saved(tmp_path / "model", state, _use_new_zipfile_serialization=is_zip)
    found = read_state_dict(path, LIMIT)
    assert list(found) == ["fc.weight", "out_linear_model.bias"]
    assert torch.equal(found["fc.weight"], torch.eye(2))


def test_the_prefix_is_added_and_removed_again(tmp_path: Path, state: dict[str, Tensor]) -> None:
    path = saved(tmp_path / "model", with_prefix(state))
    assert all(name.startswith("model.") for name in torch.load(path, weights_only=True))
    assert list(read_state_dict(path, LIMIT)) == list(state)


class Bomb:
    """Runs code when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self.marker,)


@pytest.mark.parametrize("form", ["zip", "older", "pickle", "hidden"])
def test_code_in_a_weights_file_never_runs(tmp_path: Path, form: str) -> None:
    marker = tmp_path / "marker"
    path = tmp_path / "model"
    bomb = Bomb(marker)
    if form == "pickle":
        path.write_bytes(pickle.dumps(bomb, protocol=2))
    else:
        value = {"model.fc.weight": torch.ones(1), "x": bomb} if form == "hidden" else bomb
        saved(path, value, _use_new_zipfile_serialization=form != "older")
    with pytest.raises(
        WeightsError, match=r"it holds more than tensors \(a pickled object or function\)"
    ):
        read_state_dict(path, LIMIT)
    assert not marker.exists()
    if form == "pickle":
        pickle.loads(path.read_bytes())
        assert marker.exists()


def test_a_function_of_the_system_is_refused_like_any_other(tmp_path: Path) -> None:
    path = saved(tmp_path / "model", {"state_dict": os.system})
    with pytest.raises(WeightsError, match="it holds more than tensors"):
        read_state_dict(path, LIMIT)


def test_a_pickled_network_is_refused_with_how_to_save_it(tmp_path: Path) -> None:
    path = saved(tmp_path / "model", nn.Linear(1, 1))
    with pytest.raises(
        WeightsError,
        match=r"which is never loaded. Save a state dict: torch.save\(model.state_dict\(\), …\)",
    ):
        read_state_dict(path, LIMIT)


@pytest.mark.parametrize("name", ["state_dict", "model", "net"])
def test_the_state_dict_in_a_training_checkpoint_is_read(tmp_path: Path, name: str) -> None:
    others = {
        "optimizer": {"state": {0: {"step": torch.ones(1)}}},
        "epoch": 3,
        "args": Namespace(lr=0.1),
    }
    path = saved(tmp_path / "model", {**others, name: {"model.fc.weight": torch.full((1,), 7.0)}})
    assert read_state_dict(path, LIMIT) == {"fc.weight": torch.full((1,), 7.0)}


def test_the_model_is_read_rather_than_its_average(tmp_path: Path) -> None:
    path = saved(tmp_path / "model", {"ema": {"x": torch.zeros(1)}, "model": {"x": torch.ones(1)}})
    assert read_state_dict(path, LIMIT)["x"] == 1


def test_a_checkpoint_of_several_networks_is_refused_with_where_they_are(tmp_path: Path) -> None:
    path = saved(
        tmp_path / "model", {"student": {"x": torch.ones(1)}, "teacher": {"x": torch.ones(1)}}
    )
    with pytest.raises(WeightsError, match="several state dicts, under 'student' and 'teacher'"):
        read_state_dict(path, LIMIT)


def test_an_exported_program_is_refused_with_how_to_save_its_weights(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(nn.Linear(2, 2), (torch.ones(1, 2),))
        torch.export.save(program, tmp_path / "model.pt2")
    with pytest.raises(
        WeightsError, match=r"^it is a program of torch\.export, .*load\(…\)\.state_dict, …\)\.$"
    ):
        read_state_dict(tmp_path / "model.pt2", 1 << 20)
    torch.save(
        torch.export.load(tmp_path / "model.pt2").state_dict, tmp_path / "model"
    )  # as it says
    assert read_state_dict(tmp_path / "model", 1 << 20).keys() == {"weight", "bias"}


def safetensors_file(path: Path, length: int = 72, end: int = 4) -> Path:
    """One number under the name `x`, in a header of this length that says where it ends."""
    header = b'{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,%d]}}' % end
    path.write_bytes(length.to_bytes(8, "little") + header.ljust(length) + bytes(4))
    return path


@pytest.mark.parametrize("length", [72, 0x80], ids=["plain", "starts like a pickle"])
def test_a_safetensors_file_is_read(tmp_path: Path, length: int) -> None:
    assert read_state_dict(safetensors_file(tmp_path / "model", length), LIMIT) == {
        "x": torch.zeros(1)
    }


@pytest.mark.parametrize("end", [3, 8, 1 << 40])
def test_a_safetensors_file_whose_header_is_wrong_is_refused(tmp_path: Path, end: int) -> None:
    with pytest.raises(WeightsError, match=r"^it is not a complete safetensors file: "):
        read_state_dict(safetensors_file(tmp_path / "model", end=end), LIMIT)


@pytest.mark.parametrize(
    "value",
    [
        [torch.ones(1)],
        torch.ones(1),
        {"epoch": 3},
        {"fc.weight": torch.ones(2), "epoch": 3},
        {1: torch.ones(1)},
        None,
    ],
    ids=[
        "a list",
        "a tensor",
        "a number",
        "a number besides tensors",
        "a key that is not a string",
        "nothing",
    ],
)
def test_a_value_that_is_not_a_state_dict_is_refused(tmp_path: Path, value: object) -> None:
    with pytest.raises(WeightsError, match=r"^it is not a state dict \(names to tensors\)\.$"):
        read_state_dict(saved(tmp_path / "model", value), LIMIT)


@pytest.mark.parametrize("data", [b"", b"nonsense" * 10, b"PK\x03\x04", b"\x80\x02.", LFS])
def test_a_file_not_written_by_torch_save_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "model").write_bytes(data)
    with pytest.raises(WeightsError) as raised:
        read_state_dict(tmp_path / "model", LIMIT)
    refusals = (
        "it is neither a torch.save nor",
        "it is not a torch.save file",
        "it holds more than tensors",
    )
    assert str(raised.value).startswith("it is a pointer of git-LFS" if data == LFS else refusals)
    assert "\n" not in str(raised.value)


def test_a_truncated_weights_file_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "model", {"a": torch.ones(1000)})
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(WeightsError, match=r"^it is neither .*, or is incomplete\.$"):
        read_state_dict(path, LIMIT)


def test_a_file_larger_than_the_network_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(bytes(1001))
    with pytest.raises(
        WeightsError, match=r"^the file has 1,001 bytes; the architecture has at most 1,000\.$"
    ):
        read_state_dict(tmp_path / "model", 1000)


def test_the_size_limit_allows_double_precision(resnet18: nn.Module) -> None:
    doubles = copy.deepcopy(resnet18).double()
    assert sum(value.nbytes for value in doubles.state_dict().values()) < max_bytes(resnet18)


# ── The designer's second head ───────────────────────────────────────────────────────────────────


def test_two_linear_layers_are_folded_into_an_equivalent_one() -> None:
    torch.manual_seed(0)
    inner, outer = nn.Linear(64, 1000), nn.Linear(1000, 3)
    state = {"fc.weight": inner.weight, "fc.bias": inner.bias, "other": torch.ones(1)}
    state |= {"out_linear_model.weight": outer.weight, "out_linear_model.bias": outer.bias}
    folded = fold_extra_head({name: value.detach() for name, value in state.items()}, "fc", 3)
    assert set(folded) == {"fc.weight", "fc.bias", "other"}
    assert folded["fc.weight"].dtype == torch.float32
    features = torch.randn(32, 64)
    both = outer(inner(features))
    assert torch.allclose(features @ folded["fc.weight"].T + folded["fc.bias"], both, atol=1e-5)


def test_a_classic_network_with_two_heads_predicts_as_before_folding(tmp_path: Path) -> None:
    torch.manual_seed(1)
    inner, outer = build("resnet18", False, 1000), nn.Linear(1000, 3)
    state = with_prefix(inner.state_dict())
    state |= {f"out_linear_model.{name}": value for name, value in outer.state_dict().items()}
    saved(tmp_path / "model", OrderedDict(state))
    spec = ClassifierSpec(
        "resnet18", False, ("a", "b", "c"), Framing(16, 16, 1.0), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
    )
    pixels = torch.randint(0, 256, (4, 16, 16, 3), dtype=torch.uint8)
    found = ImageClassifier.load(spec, tmp_path / "model", CPU).predict(pixels)[0]
    with torch.inference_mode():
        images = (pixels.permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.5
        expected = outer(inner.eval()(images)).softmax(dim=1)
    assert found == pytest.approx(expected.numpy(), abs=1e-5)


def test_without_a_second_head_the_state_is_unchanged() -> None:
    state = {"fc.weight": torch.ones(2, 2), "fc.bias": torch.ones(2)}
    assert fold_extra_head(state, "fc", 2) == state


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.pop("fc.bias"),
        lambda state: state.update({"out_linear_model.weight": torch.ones(3, 7)}),
        lambda state: state.update({"out_linear_model.bias": torch.ones(4)}),
    ],
    ids=["no first head", "another width", "another bias"],
)
def test_a_second_head_that_does_not_fit_is_refused(
    change: Callable[[dict[str, Tensor]], object],
) -> None:
    state = {
        "fc.weight": torch.ones(5, 2),
        "fc.bias": torch.ones(5),
        "out_linear_model.weight": torch.ones(3, 5),
        "out_linear_model.bias": torch.ones(3),
    }
    change(state)
    with pytest.raises(WeightsError, match=r"its out_linear_model.\* does not fit after fc: "):
        fold_extra_head(state, "fc", 3)


@pytest.mark.parametrize("part", ["weight", "bias"])
def test_half_of_a_second_head_is_refused(part: str) -> None:
    state = {"fc.weight": torch.ones(5, 2), "fc.bias": torch.ones(5)}
    with pytest.raises(WeightsError, match="without the other"):
        fold_extra_head(state | {f"out_linear_model.{part}": torch.ones(3)}, "fc", 3)


def test_a_second_head_of_more_classes_than_can_be_is_refused_before_it_is_multiplied() -> None:
    state = {
        "fc.weight": torch.ones(1, 512),
        "fc.bias": torch.ones(1),
        "out_linear_model.weight": torch.ones(1, 1).expand(1 << 40, 1),
        "out_linear_model.bias": torch.ones(1).expand(1 << 40),
    }
    with pytest.raises(WeightsError, match=r"has 1,099,511,627,776 rows; 3 are the most expected"):
        fold_extra_head(state, "fc", 3)


# ── Tensors and zip files that take more memory than they seem to ────────────────────────────────


@pytest.mark.parametrize(
    ("tensor", "problem"),
    [
        (torch.eye(2).to_sparse(), "is sparse"),
        (torch.empty(2, device="meta"), "has no values"),
        (torch.zeros(2, dtype=torch.complex64), "is of type torch.complex64"),
    ],
    ids=["sparse", "meta", "complex"],
)
def test_only_plain_tensors_are_weights(tmp_path: Path, tensor: Tensor, problem: str) -> None:
    path = saved(tmp_path / "model", {"fc.weight": tensor})
    with pytest.raises(WeightsError, match=rf"its tensor 'fc.weight' {problem}"):
        read_state_dict(path, LIMIT)


@pytest.mark.filterwarnings("ignore:.*nested tensors")
def test_nested_tensors_are_no_weights(tmp_path: Path) -> None:
    nested = torch.nested.nested_tensor([torch.eye(2)])
    path = saved(tmp_path / "model", {"fc.weight": nested})
    with pytest.raises(WeightsError, match=r"its tensor 'fc.weight' is nested"):
        read_state_dict(path, LIMIT)


def test_one_number_repeated_to_a_huge_shape_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "model", {"fc.weight": torch.zeros(1).expand(1 << 20, 1 << 20)})
    assert path.stat().st_size < 10_000
    with pytest.raises(WeightsError, match=r"its tensors have 4,398,046,511,104 bytes"):
        read_state_dict(path, LIMIT)


def rezipped(path: Path, appended: bytes, mebibytes: int) -> Path:
    """Deflate the members of a file of torch.save, with more bytes in its pickle."""
    target = path.with_name("rezipped")
    with (
        zipfile.ZipFile(path) as source,
        zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for member in source.infolist():
            with archive.open(member.filename, "w") as file:
                file.write(source.read(member))
                if member.filename.endswith("data.pkl"):
                    for _ in range(mebibytes):
                        file.write(appended)
    return target


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        (1 << 20, r"it unpacks to [0-9,]+ bytes"),
        (LIMIT, r"data\.pkl in it unpacks to [0-9,]+ bytes"),
    ],
    ids=["in all", "its pickle"],
)
def test_a_zip_file_that_inflates_is_refused_unread(
    tmp_path: Path, limit: int, reason: str
) -> None:
    path = saved(tmp_path / "model", {"fc.weight": torch.eye(2)})
    bomb = rezipped(path, bytes(1 << 20), 70)
    assert bomb.stat().st_size < 1 << 20
    with pytest.raises(WeightsError, match=reason):
        read_state_dict(bomb, limit)


def test_too_little_memory_is_not_blamed_on_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path / "model", {"fc.weight": torch.eye(2)})

    def load(*_: object, **__: object) -> object:
        raise RuntimeError(
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"
        )

    monkeypatch.setattr(torch, "load", load)
    with pytest.raises(MemoryError, match="can't allocate memory"):
        read_state_dict(path, LIMIT)
