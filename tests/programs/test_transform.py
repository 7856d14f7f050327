"""`init-transformation` and `transform`: their command lines, directories and messages."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torchvision.transforms import v2

from tests.painting import paint_folders
from tests.programs.program import assert_refused, run_program
from train_pytorch_model.formats.image_directory import open_image_directory


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return paint_folders(tmp_path_factory.mktemp("photos") / "photos", 3, size=(50, 40))


@pytest.fixture(scope="module")
def transformation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved resize, centre crop and random rotation."""
    output = tmp_path_factory.mktemp("transformation") / "saved"
    options = ["--resize-size", "24", "--center-crop-size", "20", "--no-random-horizontal-flip"]
    options += ["--random-rotation", "--random-rotation-degrees", "30"]
    ended = run_program("init-transformation", "--output", output, *options)
    assert ended.status == 0, ended.stderr
    return output


def transform(photos: Path, transformation: Path, output: Path, *more: str) -> list[str]:
    ports = {"--input": photos, "--transformation": transformation, "--output": output}
    return ["transform", *(str(text) for port in ports.items() for text in port), *more]


def saved(output: Path, *options: str) -> object:
    """The list that `init-transformation` writes with these options."""
    ended = run_program("init-transformation", "--output", output, *options)
    assert ended.status == 0, ended.stderr
    return json.loads((output / "_transforms.json").read_text())


def pixels(root: Path) -> list[np.ndarray]:
    return [np.asarray(Image.open(path)) for path in sorted((root / "image").iterdir())]


# ── init-transformation ──────────────────────────────────────────────────────────────────────────


def test_the_defaults_are_those_of_the_designer(tmp_path: Path) -> None:
    ended = run_program("init-transformation", "--output", tmp_path / "new")
    assert ended.status == 0
    assert ended.stdout == (
        f"The image transformation is in {tmp_path}/new: Resize, CenterCrop, RandomHorizontalFlip\n"
    )
    assert (tmp_path / "new/_meta.yaml").read_text() == (
        "type: TransformationDirectory\nextension: {}\ntransform_type: Image\n"
    )
    assert (tmp_path / "new/_transforms.json").read_text() == (
        '[\n  [\n    "Resize",\n    256\n  ],\n  [\n    "CenterCrop",\n    224\n  ],\n  [\n'
        '    "RandomHorizontalFlip",\n    {}\n  ]\n]'
    )


def test_every_operation_can_be_switched_on(tmp_path: Path) -> None:
    options = (
        "--random_perspective --random-grayscale --random-affine --random-affine-degrees 7.5"
        " --random-rotation --random-rotation-degrees 10 --random-vertical-flip"
        " --random-crop --random-crop-size 60 --random-resized-crop --random-resized-crop-size 64"
        " --grayscale --color-jitter --pad --pad-padding 4"
        " --resize True --center-crop-size 90 --resize-size 100"
    )
    assert saved(tmp_path / "all", *options.split()) == [
        ["Resize", 100],
        ["CenterCrop", 90],
        ["Pad", 4],
        ["ColorJitter", {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4}],
        ["Grayscale", {}],
        ["RandomResizedCrop", 64],
        ["RandomCrop", 60],
        ["RandomHorizontalFlip", {}],
        ["RandomVerticalFlip", {}],
        ["RandomRotation", 10],
        ["RandomAffine", 7.5],
        ["RandomGrayscale", {}],
        ["RandomPerspective", {}],
    ]


def test_default_operations_can_be_switched_off(tmp_path: Path) -> None:
    options = "--no-resize --no-center-crop --random_horizontal_flip False --grayscale"
    assert saved(tmp_path / "grey", *options.split()) == [["Grayscale", {}]]
    ended = run_program("init-transformation", "--output", tmp_path / "default", "--quiet")
    assert (ended.status, ended.stdout, ended.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("options", "messages"),
    [
        (
            "--resize-size 0 --center-crop-size 4097",
            [
                'Parameter "Resize size" value should be greater than 0 and at most 4096:'
                " --resize-size is 0.",
                'Parameter "Center crop size" value should be greater than 0 and at most 4096:'
                " --center-crop-size is 4097.",
            ],
        ),
        (
            "--pad",
            [
                'Parameter "Pad padding" value should be greater than 0 and at most 4096:'
                " --pad-padding is 0."
            ],
        ),
        (
            "--random-rotation --random-affine --random-affine-degrees 361",
            [
                'Parameter "Random rotation degrees" value should be greater than 0 and at most'
                " 360:"
                " --random-rotation-degrees is 0.",
                'Parameter "Random affine degrees" value should be greater than 0 and at most 360:'
                " --random-affine-degrees is 361.0.",
            ],
        ),
        ("--random-affine --random-affine-degrees nan", ["--random-affine-degrees is nan."]),
        (
            "--random-crop-size 100",
            ["--random-crop-size is given, and --random-crop is off. Give both or neither."],
        ),
        (
            "--no-resize --resize-size 64",
            ["--resize-size is given, and --resize is off. Give both or neither."],
        ),
        (
            "--random-crop --random-crop-size 225",
            [
                "--random-crop-size 225 exceeds the shorter side that the operations before it"
                " leave, 224 pixels. Make it smaller, or the sizes before it larger."
            ],
        ),
        (
            "--random-crop --random-resized-crop --random-resized-crop-size 8",
            [
                "--random-crop-size 224 exceeds the shorter side that the operations before it"
                " leave, 8 pixels"
            ],
        ),
        (
            "--no-resize --no-center-crop --no-random-horizontal-flip",
            ["No operation is on, so the images would stay as they are. Switch one on."],
        ),
    ],
)
def test_invalid_options_are_refused(tmp_path: Path, options: str, messages: list[str]) -> None:
    ended = run_program("init-transformation", "--output", tmp_path / "new", *options.split())
    assert_refused(ended, 2, "ParameterError: ", *messages)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "options",
    [
        "--random-crop --random-crop-size 232 --pad --pad-padding 4",
        "--random-crop --random-crop-size 999 --no-resize --no-center-crop",
    ],
)
def test_a_random_crop_may_be_as_large_as_its_input(tmp_path: Path, options: str) -> None:
    saved(tmp_path / "new", *options.split())


def test_init_transformation_overwrites_nothing(transformation: Path) -> None:
    ended = run_program("init-transformation", "--output", transformation)
    assert_refused(
        ended,
        2,
        f"OutputDirectoryError: --output {transformation} holds a finished transformation."
        " `--overwrite` replaces it",
    )


# ── transform ────────────────────────────────────────────────────────────────────────────────────


def test_inference_leaves_out_the_random_operations(
    tmp_path: Path, photos: Path, transformation: Path
) -> None:
    output = tmp_path / "out"
    ended = run_program(*transform(photos, transformation, output, "--mode", "inference"))
    assert ended.status == 0, ended.stderr
    assert ended.stdout == (
        "Transforming 9 images for inference: Resize, CenterCrop\nThe 9 transformed images are in"
        f" {output}\n"
    )
    expected = v2.Compose([v2.Resize(24), v2.CenterCrop(20)])
    originals = [photos / name for name in open_image_directory(photos, "Dataset").file_names]
    for original, found in zip(originals, pixels(output), strict=True):
        assert np.array_equal(np.asarray(expected(Image.open(original))), found)


def test_training_mode_is_reproducible_for_the_same_seed_only(
    tmp_path: Path, photos: Path, transformation: Path
) -> None:
    for output, options in {
        "a": [],
        "b": ["--random-seed", "1"],
        "c": ["--random-seed", "2"],
    }.items():
        arguments = transform(
            photos, transformation, tmp_path / output, "--mode", "training", *options
        )
        assert run_program(*arguments, "--quiet").stdout == ""
    assert all(
        np.array_equal(a, b)
        for a, b in zip(pixels(tmp_path / "a"), pixels(tmp_path / "b"), strict=True)
    )
    assert not any(
        np.array_equal(a, c)
        for a, c in zip(pixels(tmp_path / "a"), pixels(tmp_path / "c"), strict=True)
    )


def test_a_result_can_be_transformed_again(
    tmp_path: Path, photos: Path, transformation: Path
) -> None:
    (tmp_path / "list.json").write_text('[["CenterCrop", 8]]')
    once, twice = tmp_path / "once", tmp_path / "twice"
    run_program(*transform(photos, transformation, once, "--mode", "training"))
    ended = run_program(*transform(once, tmp_path / "list.json", twice, "--mode", "training"))
    assert ended.status == 0, ended.stderr
    assert (twice / "images.lst").read_bytes() == (once / "images.lst").read_bytes()
    assert (twice / "_schema.json").read_bytes() == (once / "_schema.json").read_bytes()
    assert {image.shape for image in pixels(twice)} == {(8, 8, 3)}


def test_unreadable_images_are_left_out(tmp_path: Path, transformation: Path) -> None:
    photos = paint_folders(tmp_path / "photos", 2)
    (photos / "red/0.png").write_bytes(b"no image")
    (photos / "red/notes.txt").touch()
    ended = run_program(*transform(photos, transformation, tmp_path / "out", "--mode", "inference"))
    assert ended.status == 0, ended.stderr
    assert (
        "Warning: 1 unreadable image is left out:\n  Input image directory: 'red/0.png': not an"
        " image" in ended.stdout
    )
    assert (
        f'Warning: Input image directory "{photos}": skipped: files of another kind (.txt): 1.'
        in ended.stdout
    )
    assert f"The 5 transformed images are in {tmp_path}/out\n" in ended.stdout
    assert (
        (tmp_path / "out/bad_images.csv")
        .read_text()
        .splitlines()[1]
        .startswith("Input image directory,red/0.png,red")
    )


def test_invalid_inputs_and_outputs_are_refused(
    tmp_path: Path, photos: Path, transformation: Path
) -> None:
    mode = ("--mode", "inference")
    ended = run_program(*transform(tmp_path / "none", transformation, tmp_path / "out", *mode))
    assert_refused(
        ended, 3, f'InvalidDatasetError: Input image directory "{tmp_path}/none" is not valid'
    )
    ended = run_program(*transform(photos, tmp_path / "none", tmp_path / "out", *mode))
    assert_refused(
        ended,
        3,
        'InvalidTransformationDirectoryError: TransformationDirectory "Input image transformation'
        f' {tmp_path}/none" is invalid. Reason: there is no such directory or file.',
    )
    ended = run_program(*transform(photos, transformation, transformation, *mode))
    assert_refused(
        ended, 2, f"OutputDirectoryError: --output {transformation} is not empty: it holds _meta"
    )
    ended = run_program(*transform(photos, transformation, photos / "out", *mode))
    assert_refused(
        ended,
        2,
        f"OutputDirectoryError: --output {photos}/out is inside --input {photos}. Name a directory",
    )
    assert not (photos / "out").exists()
    (tmp_path / "large.json").write_text('[["RandomCrop", 60]]')
    ended = run_program(
        *transform(photos, tmp_path / "large.json", tmp_path / "out", "--mode", "training")
    )
    assert_refused(
        ended,
        3,
        "InvalidTransformationDirectoryError: ",
        "RandomCrop cannot be applied to 50 x 40 pixels",
        "Put a Resize before that operation, or change its arguments.",
    )
    assert not list(tmp_path.glob("out/*"))


def test_a_missing_or_unknown_mode_is_refused(
    tmp_path: Path, photos: Path, transformation: Path
) -> None:
    assert run_program(*transform(photos, transformation, tmp_path / "out")).status == 2
    assert (
        run_program(*transform(photos, transformation, tmp_path / "out", "--mode", "test")).status
        == 2
    )
