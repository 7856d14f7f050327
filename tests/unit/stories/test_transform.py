"""Transforming a directory: the classic form, randomness, and images that cannot be transformed."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.logs import warnings_in
from tests.painting import encode, paint, paint_folders

from train_pytorch_model.errors import InvalidDatasetError, InvalidTransformationDirectoryError
from train_pytorch_model.formats import transformation_directory as ops
from train_pytorch_model.formats.image_directory import ImageDirectory, open_image_directory
from train_pytorch_model.formats.transformation_directory import Transformation
from train_pytorch_model.inputs.unreadable_images import UnreadableImage
from train_pytorch_model.machine.console import Bar
from train_pytorch_model.stories import transform as transform_story

PORT = "Input image directory"


def run(
    images: ImageDirectory,
    output: Path,
    *operations: ops.Operation,
    seed: int = 1,
    unreadable_images: tuple[UnreadableImage, ...] = (),
) -> int:
    transformation = Transformation("Input image transformation T", operations)
    return transform_story.transform(
        images, unreadable_images, transformation, seed, output, "output"
    )


def open_painted(
    tmp_path: Path, per_category: int = 2, size: tuple[int, int] = (12, 10)
) -> ImageDirectory:
    folders = paint_folders(tmp_path / "folders", per_category, ("blue", "red"), size)
    return open_image_directory(folders, PORT)


def write_directory(
    root: Path, rows: list[dict[str, Any]], columns: list[dict[str, Any]]
) -> ImageDirectory:
    """Write and open an ImageDirectory with these rows, painting an image for each."""
    for index, row in enumerate(rows):
        path = root / row["image_info"]["file_name"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(paint("blue", index), "JPEG" if path.suffix == ".jpg" else "PNG"))
    (root / "images.lst").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (root / "_schema.json").write_text(json.dumps({"columnAttributes": [IMAGE_COLUMN, *columns]}))
    (root / "_meta.yaml").write_text(
        "type: ImageDirectory\nextension: {}\nimage_list: images.lst\nsamples: _samples.json\n"
        "schema: _schema.json\n"
    )
    return open_image_directory(root, PORT)


def column(name: str, kind: str, type_name: str, **properties: Any) -> dict[str, Any]:
    element = {"typeName": type_name, "isNullable": False}
    described = {"name": name, "type": kind, "isFeature": kind == "Bytes", "elementType": element}
    return described | ({"properties": properties} if properties else {})


IMAGE_COLUMN = column("image", "Bytes", "bytes", mime_type="image/png", image_ref="image_info")
ID_COLUMN = column("id", "Numeric", "int64")


def pixels(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): Image.open(path).convert("RGB").tobytes()
        for path in sorted((root / "image").rglob("*.png"))
    }


# ── The output directory ─────────────────────────────────────────────────────────────────────────


def test_the_output_has_the_classic_form(tmp_path: Path) -> None:
    rows = [
        {"image_info": {"file_name": "image/2_29.jpg", "width": 32}, "category": "b", "id": 29},
        {"image_info": {"file_name": "image/0_3.png"}, "category": "a", "id": 3},
    ]
    categories = [{"id": 0, "name": "a"}, {"id": 2, "name": "b"}]
    label = column(
        "category", "String", "str", annotation_type="COCO_classification", categories=categories
    )
    images = write_directory(tmp_path / "in", rows, [ID_COLUMN, label])
    assert run(images, tmp_path / "out", ops.Resize(8)) == 2

    out = tmp_path / "out"
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()) == [
        "_meta.yaml",
        "_samples.json",
        "_schema.json",
        "image/0_3.png",
        "image/2_29.png",
        "images.lst",
    ]
    assert (out / "_meta.yaml").read_text() == (
        "type: ImageDirectory\nextension: {}\nimage_list: images.lst\nsamples: _samples.json\n"
        "schema: _schema.json\n"
    )
    assert (out / "images.lst").read_text() == (
        '{"image_info": {"file_name": "image/2_29.png"}, "category": "b", "id": 29}\n'
        '{"image_info": {"file_name": "image/0_3.png"}, "category": "a", "id": 3}\n'
    )
    assert json.loads((out / "_schema.json").read_text()) == {
        "columnAttributes": [IMAGE_COLUMN, ID_COLUMN, label]
    }
    samples = json.loads((out / "_samples.json").read_text())
    assert [list(sample) for sample in samples] == [["image", "id", "category"]] * 2
    first = Image.open(io.BytesIO(base64.b64decode(samples[0]["image"])))
    assert (first.format, first.size, first.mode) == ("PNG", (8, 8), "RGB")
    assert (samples[0]["id"], samples[0]["category"]) == (29, "b")


def test_other_columns_are_kept_but_outdated_sizes_are_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    image_info = {"id": 9, "file_name": "image/a.png", "width": 32, "height": 32}
    rows = [{"image_info": image_info, "id": 7, "town": "Köln", "boxes": [[1, 2, 3, 4]]}]
    columns = [
        ID_COLUMN,
        column("boxes", "Object", "object", annotation_type="COCO_object_detection"),
        column("town", "String", "str"),
    ]
    images = write_directory(tmp_path / "in", rows, columns)
    run(images, tmp_path / "out")
    assert (tmp_path / "out/images.lst").read_text() == (
        '{"image_info": {"id": 9, "file_name": "image/a.png"}, "id": 7, "town": "K\\u00f6ln",'
        ' "boxes": [[1, 2, 3, 4]]}\n'
    )
    assert warnings_in(caplog) == [
        f"{images.title}: the annotations in column 'boxes' are copied unchanged, not transformed"
    ]


def test_plain_folders_become_a_labelled_directory(tmp_path: Path) -> None:
    images = open_painted(tmp_path)
    run(images, tmp_path / "out", ops.Resize(6))
    result = open_image_directory(tmp_path / "out", PORT)
    assert list(result.file_names) == [
        "image/0_0.png",
        "image/0_1.png",
        "image/1_2.png",
        "image/1_3.png",
    ]
    assert result.categories == ("blue", "red")
    assert [row for _, row in result.read_rows()] == [row for _, row in images.read_rows()]


def test_a_folder_of_images_stays_unlabelled(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("b.jpeg", "a.PNG"):
        paint("red", 0).save(tmp_path / "in" / name)
    run(open_image_directory(tmp_path / "in", PORT), tmp_path / "out")
    assert (tmp_path / "out/images.lst").read_text() == (
        '{"image_info": {"file_name": "image/a.png"}, "id": 0}\n'
        '{"image_info": {"file_name": "image/b.png"}, "id": 1}\n'
    )


def test_no_two_images_get_the_same_file(tmp_path: Path) -> None:
    names = [
        "a.jpg",
        "a.png",
        "A.png",
        "5.png",
        "sub/a.png",
        "x.png/y.png",
        f"{'n' * 253}.x",
        "sub//a.jpg",
    ]
    rows = [
        {"image_info": {"file_name": f"image/{name}"}, "id": 10 + row}
        for row, name in enumerate([*names, "a.jpg"])
    ]
    directory = write_directory(tmp_path / "in", rows, [ID_COLUMN])
    run(directory, tmp_path / "out")
    result = open_image_directory(tmp_path / "out", PORT)
    assert list(result.file_names) == [
        "image/a.png",
        "image/1.png",
        "image/2.png",
        "image/5.png",
        "image/sub/a.png",
        "image/5_2.png",
        "image/6.png",
        "image/7.png",
        "image/8.png",
    ]
    assert len(pixels(tmp_path / "out")) == len(rows)


def test_images_are_written_upright_in_rgb_without_metadata(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: rotate by 90 degrees
    image = paint("blue", 3, (20, 10))
    image.save(tmp_path / "in/a.png", exif=exif, icc_profile=b"profile")
    run(open_image_directory(tmp_path / "in", PORT), tmp_path / "out")
    written = Image.open(tmp_path / "out/image/a.png")
    assert written.size == (10, 20)
    assert np.array_equal(
        np.asarray(written), np.asarray(image.transpose(Image.Transpose.ROTATE_270))
    )
    assert written.info == {}
    assert not written.getexif()


# ── Randomness ───────────────────────────────────────────────────────────────────────────────────

RANDOM = (
    ops.RandomResizedCrop(8),
    ops.ColorJitter(0.5),
    ops.RandomHorizontalFlip(),
    ops.RandomRotation(90),
)


@pytest.mark.parametrize("threads", [1, 7])
def test_the_output_depends_on_the_seed_and_not_on_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    images = open_painted(tmp_path, 12)
    run(images, tmp_path / "reference", *RANDOM)
    monkeypatch.setattr(transform_story, "usable_cores", lambda: threads)
    run(images, tmp_path / "again", *RANDOM)
    run(images, tmp_path / "other", *RANDOM, seed=-2)
    assert pixels(tmp_path / "again") == pixels(tmp_path / "reference")
    changed = pixels(tmp_path / "other").items() - pixels(tmp_path / "reference").items()
    assert len(changed) == 24


def test_randomness_of_an_image_does_not_depend_on_other_images(tmp_path: Path) -> None:
    images = open_painted(tmp_path, 4)
    run(images, tmp_path / "all", *RANDOM)
    run(images.select(np.asarray([1, 6])), tmp_path / "some", *RANDOM)
    assert pixels(tmp_path / "some").items() <= pixels(tmp_path / "all").items()
    assert len(pixels(tmp_path / "some")) == 2


def test_the_global_random_state_is_unchanged(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    run(open_painted(tmp_path), tmp_path / "out", *RANDOM)
    assert torch.equal(torch.rand(3), expected)


# ── Images that cannot be transformed ────────────────────────────────────────────────────────────


def test_unreadable_images_are_left_out_and_listed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    images = open_painted(tmp_path, 3)
    data = images.path(1).read_bytes()
    images.path(1).write_bytes(data[: len(data) // 2])
    early = UnreadableImage(PORT, "red/9.png", "red", "early")
    assert run(images, tmp_path / "out", unreadable_images=(early,)) == 5
    result = open_image_directory(tmp_path / "out", PORT)
    assert [row["id"] for _, row in result.read_rows()] == [0, 2, 3, 4, 5]
    lines = (tmp_path / "out/bad_images.csv").read_text().splitlines()
    assert lines[:2] == [
        "port,file_name,category,reason,original",
        "Input image directory,red/9.png,red,early,",
    ]
    assert lines[2].startswith("Input image directory,blue/1.png,blue,OSError: ")
    assert warnings_in(caplog)[0].startswith(
        "2 unreadable images are left out:\n  Input image directory: 'red/9.png': early"
    )


def test_an_image_too_small_for_an_operation_is_left_out_and_listed(tmp_path: Path) -> None:
    images = open_painted(tmp_path, 3)
    paint("red", 0, (7, 10)).save(images.path(4))
    assert run(images, tmp_path / "out", ops.RandomCrop(8)) == 5
    lines = (tmp_path / "out/bad_images.csv").read_text().splitlines()
    assert lines[1].startswith(
        'Input image directory,red/1.png,red,"RandomCrop cannot be applied to 7 x 10 pixels: '
    )


def test_without_a_readable_image_there_is_no_output(tmp_path: Path) -> None:
    images = open_painted(tmp_path, 1)
    for index in range(2):
        images.path(index).write_bytes(b"no image")
    with pytest.raises(InvalidDatasetError, match="no image can be read of category 'blue'"):
        run(images, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_if_an_operation_fits_no_image_the_transformation_is_refused(tmp_path: Path) -> None:
    images = open_painted(tmp_path, 2)
    with pytest.raises(InvalidTransformationDirectoryError) as raised:
        run(images, tmp_path / "out", ops.RandomCrop(20))
    reason = "Required crop size (20, 20) is larger than input image size (10, 12)"
    assert str(raised.value) == (
        'TransformationDirectory "Input image transformation T" is invalid. Reason: it cannot be'
        " applied to 2"
        f" of 4 images:\n  blue/0.png: RandomCrop cannot be applied to 12 x 10 pixels: {reason}"
        f"\n  blue/1.png: RandomCrop cannot be applied to 12 x 10 pixels: {reason}"
        "\n Put a Resize before that operation, or change its arguments."
    )
    assert not (tmp_path / "out").exists()


def test_if_most_images_are_damaged_the_dataset_is_refused(tmp_path: Path) -> None:
    images = open_painted(tmp_path, 3)
    for index in (1, 2, 3):
        images.path(index).write_bytes(b"no image")
    with pytest.raises(InvalidDatasetError, match="no image can be read of category 'blue'"):
        run(images, tmp_path / "out", ops.RandomCrop(20))


def test_an_interrupted_transformation_leaves_no_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: Bar) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Bar, "advance", interrupt)
    images = open_painted(tmp_path, 20)
    with pytest.raises(KeyboardInterrupt):
        run(images, tmp_path / "out")
    assert not (tmp_path / "out").exists()
