from pathlib import Path

import pytest

from train_pytorch_model.config.fit_options import FitOptions
from train_pytorch_model.config.wording import for_command_line
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.inputs.race_options import (
    OF_TIMM,
    RACED_AT,
    candidates_of,
    check_race_options,
    describes_a_model,
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (FitOptions(candidates=("resnet18",)), "--candidates are the networks of a race, which"),
        (FitOptions(minutes=0.0), "--minutes should be greater than 0; it is 0.0."),
        (FitOptions(minutes=float("nan")), "--minutes should be greater than 0; it is nan."),
        (FitOptions(minutes=3, from_scratch=True), "--minutes and --from-scratch are mutually"),
        (
            FitOptions(minutes=3, start_from=Path("model")),
            r"Give one\. A trained model can be one of the --candidates\.",
        ),
        (
            FitOptions(minutes=3, candidates=("resnet17",)),
            r"--candidates: resnet17 is not known\. .* Nor is there a directory of that name\.",
        ),
        (
            FitOptions(minutes=3, candidates=("no/model",)),
            r"--candidates no/model: .*no",
        ),
    ],
)
def test_options_that_are_no_race_are_refused(options: FitOptions, message: str) -> None:
    with for_command_line(), pytest.raises(ParameterError, match=message):
        check_race_options(options)


def test_names_and_directories_are_candidates(tmp_path: Path) -> None:
    options = FitOptions(minutes=3, candidates=("resnet18", str(tmp_path), "resnet18"))
    check_race_options(options)
    assert candidates_of(options) == ["resnet18", str(tmp_path)]


def test_by_default_a_few_networks_race() -> None:
    names = candidates_of(FitOptions(minutes=3))
    assert "resnet18" in names
    assert all(name in names for name in ("resnet50", "convnext_tiny"))


def test_by_default_networks_race_at_a_size_that_is_theirs_or_named() -> None:
    assert set(RACED_AT) <= set(OF_TIMM)


def test_a_model_that_the_options_describe_takes_part() -> None:
    assert describes_a_model(FitOptions(minutes=3, weights_file=Path("w.safetensors")))
    assert not describes_a_model(FitOptions(minutes=3))


def test_without_minutes_nothing_is_checked() -> None:
    check_race_options(FitOptions())
