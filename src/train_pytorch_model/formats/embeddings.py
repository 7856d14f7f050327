"""The features of images before the last layer of a network, as a Parquet file.

embeddings.parquet     file_name    string, as in scores.csv
                       embedding    fixed_size_list<float32 or float16>, one size for all rows
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from train_pytorch_model.formats.row_groups import RowGroups

EMBEDDINGS = "embeddings.parquet"
ROW_GROUP_BYTES = 8 << 20  # which wait in memory; its two columns cost little in each of many


def write_embeddings(
    row_groups: RowGroups, file_names: Sequence[str], features: np.ndarray, dtype: str
) -> None:
    """Write the features (B, F), float32, of a batch; those beyond the range of the dtype as its ends.

    A byte of a name that is not valid UTF-8, which text in Parquet is, becomes U+FFFD.
    """
    names = [name.encode(errors="surrogateescape").decode(errors="replace") for name in file_names]
    largest = np.finfo(dtype).max
    values = pa.array(features.clip(-largest, largest).astype(dtype).ravel())
    embeddings = pa.FixedSizeListArray.from_arrays(values, features.shape[1])
    row_groups.write(pa.table({"file_name": names, "embedding": embeddings}))
