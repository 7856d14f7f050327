"""Read the weights in a file of `torch.export.save` without loading the program.

    <name>/data/weights/model_weights_config.json   {"config": {<tensor>: {"path_name": "weight_0",
                                                     "use_pickle": false, "tensor_meta": {"dtype": 7,
                                                     "sizes": [{"as_int": 64}, …], "strides": […], …}}}}
    <name>/data/weights/weight_0                    the tensor's storage, as raw bytes

The program itself is code and is never read: its weights go into the network that this package builds.
"""

import lzma
import math
import zipfile
import zlib
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from train_pytorch_model.image_classifier.weights import WeightsError

CONFIG = "/data/weights/model_weights_config.json"
MODEL = "/models/model.json"
MAX_CONFIG_BYTES = 64 << 20
# torch.export's numbers for the dtypes of weights.
DTYPES = {5: torch.int64, 6: torch.float16, 7: torch.float32, 8: torch.float64, 13: torch.bfloat16}


class _Int(msgspec.Struct):
    as_int: int


class _Meta(msgspec.Struct):
    dtype: int
    sizes: list[_Int]
    strides: list[_Int]
    storage_offset: _Int


class _Weight(msgspec.Struct):
    path_name: str
    tensor_meta: _Meta
    use_pickle: bool = False


class _Config(msgspec.Struct):
    config: dict[str, _Weight]


def is_exported_program(path: Path) -> bool:
    """Whether a file was written by `torch.export.save`."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith((CONFIG, MODEL)) for name in archive.namelist())
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
        return False


def read_exported_weights(path: Path, max_bytes: int) -> dict[str, Tensor]:
    """The program's parameters and buffers by name. Raises `WeightsError`."""
    size = path.stat().st_size
    if size > max_bytes:
        raise WeightsError(f"the file has {size:,} bytes; the architecture has at most {max_bytes:,}.")
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(archive, max_bytes)
    except (
        OSError,
        EOFError,
        ValueError,
        KeyError,
        RuntimeError,
        RecursionError,
        TypeError,  # from as_strided, for numbers beyond 64 bits
        OverflowError,
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
    ) as error:
        reason = " ".join(str(error).split())[:160]
        raise WeightsError(f"it is a damaged file of torch.export.save ({reason}).") from error


def _read(archive: zipfile.ZipFile, max_bytes: int) -> dict[str, Tensor]:
    config_name = next((name for name in archive.namelist() if name.endswith(CONFIG)), None)
    if config_name is None:
        raise WeightsError(
            "it is a program of an older torch.export, whose weights are pickled. Save its state dict:"
            " torch.save(program.state_dict, …)."
        )
    config = msgspec.json.decode(_member(archive, config_name, MAX_CONFIG_BYTES), type=_Config)
    folder = config_name.rpartition("/")[0]
    state: dict[str, Tensor] = {}
    left = max_bytes
    for name, weight in config.config.items():
        if weight.use_pickle or weight.tensor_meta.dtype not in DTYPES:
            raise WeightsError(f"its tensor {name!r} is not stored as plain numbers.")
        data = _member(archive, f"{folder}/{weight.path_name}", left)
        left -= len(data)
        state[name] = _tensor(data, weight.tensor_meta)
    return state


def _member(archive: zipfile.ZipFile, name: str, max_bytes: int) -> bytes:
    info = archive.getinfo(name)
    if info.file_size > max_bytes:
        raise WeightsError("it unpacks to more than the architecture has.")
    with archive.open(info) as file:
        return file.read(max_bytes + 1)


def _tensor(data: bytes, meta: _Meta) -> Tensor:
    """The tensor with these bytes as its storage. Raises `RuntimeError` for sizes that exceed the data."""
    values = torch.frombuffer(bytearray(data), dtype=DTYPES[meta.dtype]) if data else torch.empty(0)
    sizes, strides = ([number.as_int for number in numbers] for numbers in (meta.sizes, meta.strides))
    if math.prod(sizes) > len(values):  # a stride of 0 could expand a few bytes to any size
        raise RuntimeError(f"sizes {sizes} of {len(values)} numbers")
    return values.as_strided(sizes, strides, meta.storage_offset.as_int).clone()
