"""Writing image directories: the classic form, byte for byte."""

import base64
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.image_directories import PORT, open_three, write_image_directory, write_three
from tests.painting import encode

from train_pytorch_model.errors import OutputDirectoryError
from train_pytorch_model.formats.image_directory import (
    image_row,
    open_image_directory,
    writing_image_directory,
)
from train_pytorch_model.formats.schema import image_samples, image_schema


def test_a_written_directory_has_the_classic_form_byte_for_byte(tmp_path: Path) -> None:
    root = write_three(tmp_path / "data")
    assert sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()) == [
        "_meta.yaml",
        "_samples.json",
        "_schema.json",
        "image/0_0.png",
        "image/0_2.png",
        "image/1_1.png",
        "images.lst",
    ]
    assert (root / "_meta.yaml").read_bytes() == (
        b"type: ImageDirectory\n"
        b"extension: {}\n"
        b"image_list: images.lst\n"
        b"samples: _samples.json\n"
        b"schema: _schema.json\n"
    )
    assert (root / "images.lst").read_bytes() == (
        b'{"image_info": {"file_name": "image/0_0.png"}, "category": "gro\\u00dfe", "id": 0}\n'
        b'{"image_info": {"file_name": "image/1_1.png"}, "category": "b", "id": 1}\n'
        b'{"image_info": {"file_name": "image/0_2.png"}, "category": "gro\\u00dfe", "id": 2}\n'
    )


def test_the_schema_declares_image_id_and_category_byte_for_byte(tmp_path: Path) -> None:
    root = write_three(tmp_path / "data")
    assert (
        (root / "_schema.json").read_bytes()
        == rb"""{
  "columnAttributes": [
    {
      "name": "image",
      "type": "Bytes",
      "isFeature": true,
      "elementType": {
        "typeName": "bytes",
        "isNullable": false
      },
      "properties": {
        "mime_type": "image/png",
        "image_ref": "image_info"
      }
    },
    {
      "name": "id",
      "type": "Numeric",
      "isFeature": false,
      "elementType": {
        "typeName": "int64",
        "isNullable": false
      }
    },
    {
      "name": "category",
      "type": "String",
      "isFeature": false,
      "elementType": {
        "typeName": "str",
        "isNullable": false
      },
      "properties": {
        "annotation_type": "COCO_classification",
        "categories": [
          {
            "id": 0,
            "name": "gro\u00dfe"
          },
          {
            "id": 1,
            "name": "b"
          }
        ]
      }
    }
  ]
}"""
    )


def test_samples_are_the_first_rows_with_the_image_as_base64(tmp_path: Path) -> None:
    tiny = b"P6 1 1 255\nabc"
    images = [(f"0_{index}.ppm", tiny, "a") for index in range(5)]
    write_image_directory(tmp_path / "data", images, ["a", "b"])
    samples = json.loads((tmp_path / "data/_samples.json").read_bytes())
    assert samples == [
        {"image": "UDYgMSAxIDI1NQphYmM=", "id": 0, "category": "a"},
        {"image": "UDYgMSAxIDI1NQphYmM=", "id": 1, "category": "a"},
        {"image": "UDYgMSAxIDI1NQphYmM=", "id": 2, "category": "a"},
    ]
    assert [list(sample) for sample in samples] == [["image", "id", "category"]] * 3


def test_samples_read_no_more_rows_than_needed(tmp_path: Path) -> None:
    image = tmp_path / "a.ppm"
    image.write_bytes(b"P6 1 1 255\nabc")
    rows = iter([(image, {"id": index}) for index in range(10)])
    assert [sample["id"] for sample in image_samples(rows)] == [0, 1, 2]
    assert len(list(rows)) >= 6


def test_a_large_sample_image_is_reduced(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (600, 400, 3), dtype=np.uint8)
    data = encode(Image.fromarray(noise))
    write_image_directory(tmp_path / "data", [("0_0.png", data, "a")], ["a"])
    assert len((tmp_path / "data/_samples.json").read_bytes()) < len(data) / 4


def test_a_reduced_sample_carries_no_comment_of_its_image(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (400, 400, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "a.jpg", comment="a secret" * 1000)
    (sample,) = image_samples([(tmp_path / "a.jpg", {})])
    assert b"secret" not in base64.b64decode(sample["image"])


def test_an_unreadable_image_is_not_sampled(tmp_path: Path) -> None:
    images = [("0_0.png", b"x" * 100_000, "a"), ("0_1.ppm", b"P6 1 1 255\nabc", "a")]
    write_image_directory(tmp_path / "data", images, ["a"])
    samples = json.loads((tmp_path / "data/_samples.json").read_bytes())
    assert [sample["id"] for sample in samples] == [1]


def test_an_unlabelled_directory_has_no_category_anywhere(tmp_path: Path) -> None:
    write_image_directory(tmp_path / "data", [("a.png", b"", None)], [])
    assert (tmp_path / "data/images.lst").read_bytes() == (
        b'{"image_info": {"file_name": "image/a.png"}, "id": 0}\n'
    )
    schema = json.loads((tmp_path / "data/_schema.json").read_bytes())
    assert [column["name"] for column in schema["columnAttributes"]] == ["image", "id"]
    directory = open_image_directory(tmp_path / "data", PORT)
    assert directory.categories == ()
    assert [row for _, row in directory.read_rows()] == [{"id": 0}]


def test_a_written_directory_is_read_back(tmp_path: Path) -> None:
    directory = open_three(tmp_path)
    assert directory.categories == ("große", "b")
    assert list(directory.file_names) == ["image/0_0.png", "image/1_1.png", "image/0_2.png"]
    assert directory.class_indices.tolist() == [0, 1, 0]
    assert [row for _, row in directory.read_rows()] == [
        {"id": 0, "category": "große"},
        {"id": 1, "category": "b"},
        {"id": 2, "category": "große"},
    ]


def test_files_may_be_written_in_any_order_and_rows_keep_theirs(tmp_path: Path) -> None:
    rows = [image_row(f"image/x/{index}.ppm", index, "a") for index in (0, 1)]
    with writing_image_directory(tmp_path / "data", image_schema(["a"]), "output") as writer:
        for row in reversed(rows):
            writer.path_for(row).write_bytes(b"P6 1 1 255\nabc")
        for row in rows:
            writer.add(row)
    directory = open_image_directory(tmp_path / "data", PORT)
    assert list(directory.file_names) == ["image/x/0.ppm", "image/x/1.ppm"]


def test_a_schema_with_other_column_names_is_honoured(tmp_path: Path) -> None:
    image = {
        "name": "photo",
        "type": "Bytes",
        "properties": {"mime_type": "image/png", "image_ref": "where"},
    }
    columns = [{"name": "shelf", "type": "Numeric"}, image]
    row = {"shelf": 3, "where": {"file_name": "p/1.ppm", "width": 1}, "unknown": 0}
    with writing_image_directory(
        tmp_path / "data", {"columnAttributes": columns}, "output"
    ) as writer:
        writer.path_for(row).write_bytes(b"P6 1 1 255\nabc")
        writer.add(row)
    assert json.loads((tmp_path / "data/images.lst").read_text()) == row
    assert json.loads((tmp_path / "data/_samples.json").read_text()) == [
        {"photo": "UDYgMSAxIDI1NQphYmM=", "shelf": 3}
    ]
    assert [row for _, row in open_image_directory(tmp_path / "data", PORT).read_rows()] == [
        {"shelf": 3}
    ]


def test_a_full_disk_leaves_no_output(tmp_path: Path) -> None:
    def fill(path: Path) -> None:
        with writing_image_directory(path, image_schema([]), "output") as writer:
            writer.path_for(image_row("image/0.png", 0, None)).write_bytes(b"")
            raise OSError(28, "No space left on device")

    with pytest.raises(OutputDirectoryError, match=r"nothing is left of it: .*No space left"):
        fill(tmp_path / "data")
    assert not (tmp_path / "data").exists()
