"""The Parquet file of features before the last layer."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from train_pytorch_model.formats.data_frame_directory import EMBEDDINGS, RowGroups, write_embeddings

FEATURES = np.array([[0.5, -2.0, 0.0], [1e-3, 1e6, -1e6], [3.0, 4.0, 5.0]], dtype=np.float32)
NAMES = ["a.png", "größe/b.png", "not utf-8 \udcff.png"]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_each_image_has_a_list_of_fixed_size(dtype: str, tmp_path: Path) -> None:
    with RowGroups(tmp_path / EMBEDDINGS, num_bytes=1) as groups:
        for start, end in ((0, 2), (2, 3)):
            write_embeddings(groups, NAMES[start:end], FEATURES[start:end], dtype)
    table = pq.read_table(tmp_path / EMBEDDINGS)
    assert table.schema.field("embedding").type == pa.list_(pa.from_numpy_dtype(dtype), 3)
    assert table["file_name"].to_pylist() == [*NAMES[:2], "not utf-8 \N{REPLACEMENT CHARACTER}.png"]
    largest = np.finfo(dtype).max
    expected = FEATURES.clip(-largest, largest).astype(dtype)
    np.testing.assert_array_equal(np.stack(table["embedding"].to_numpy()), expected)


def test_no_file_is_left_if_nothing_is_written(tmp_path: Path) -> None:
    with RowGroups(tmp_path / EMBEDDINGS, num_bytes=1):
        pass
    assert not list(tmp_path.iterdir())
