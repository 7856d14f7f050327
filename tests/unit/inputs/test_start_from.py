"""A trained model to start from: its recipe, its categories, and options that it decides."""

from pathlib import Path

import pytest

from train_pytorch_model.config.fit_options import FitOptions
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.config.wording import for_command_line
from train_pytorch_model.errors import InvalidModelDirectoryError, ParameterError
from train_pytorch_model.inputs.start_from import check_start_options, open_start


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (FitOptions(start_from=Path("m"), pretrained=True), "pretrained"),
        (FitOptions(start_from=Path("m"), from_scratch=True), "from-scratch"),
        (FitOptions(start_from=Path("m"), architecture="resnet50"), "architecture"),
        (FitOptions(start_from=Path("m"), weights_file=Path("w")), "weights-file"),
    ],
)
def test_what_the_model_decides_is_not_an_option(options: FitOptions, name: str) -> None:
    check_start_options(FitOptions(start_from=Path("m"), recipe=Recipe(image_size=64)))
    with for_command_line(), pytest.raises(ParameterError) as raised:
        check_start_options(options)
    assert f"--start-from and --{name} are mutually exclusive" in str(raised.value)


@pytest.mark.parametrize(
    ("name", "reason"), [("nowhere", "there is no"), ("", "it is not a model (_meta.yaml is")]
)
def test_what_is_no_model_is_refused_with_what_to_name(
    tmp_path: Path, name: str, reason: str
) -> None:
    with pytest.raises(InvalidModelDirectoryError) as raised:
        open_start(tmp_path / name, Recipe())
    assert reason in str(raised.value)
    assert str(raised.value).endswith(
        "Name a model that fit or train has written, such as photographs-model."
    )
