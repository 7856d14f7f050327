"""What a command line probably meant."""

import pytest

from train_pytorch_model.commands.hints import hints
from train_pytorch_model.commands.verbs import VERBS
from train_pytorch_model.config.foreign_options import MEANINGS, REMARKS
from train_pytorch_model.config.options import options_in


@pytest.mark.parametrize(
    ("verb", "option", "here"),
    [
        ("train", "--lr=0.1", "--learning-rate"),
        ("train", "--epoch", "--epochs"),
        ("train", "--warmup-epochs", "--warmup-step-number"),
        ("train", "--data", "--training-dataset or --validation-dataset"),
        ("train", "--imgsz", "is not an option of train, but of fit, init-model and export"),
        ("train", "-m", "--untrained-model or --trained-model"),
        ("train", "--device", "CUDA_VISIBLE_DEVICES"),
        ("train", "--num_workers", "cores"),
        ("score", "--data-dir", "--dataset"),
        ("fit", "--data-dir", "the folder alone"),
        ("score", "--output", "is --scored-dataset"),
        ("score", "--source", "is --dataset"),
        ("split", "--out", "is --output-1"),
        ("evaluate", "--evaluation", "is --output"),
        ("init-model", "--arch", "--architecture"),
    ],
)
def test_an_option_of_another_trainer_is_answered_with_ours(
    verb: str, option: str, here: str
) -> None:
    options = {name: [each.name for each in options_in(command)] for name, command in VERBS.items()}
    (hint,) = hints([option, "3"], verb, options)
    assert hint.startswith(f"{option.partition('=')[0]} is ")
    assert f" {here} " in hint.replace(".", " ").replace("=", " ")


def test_every_name_of_another_trainer_means_an_option() -> None:
    ours = {option.name for command in VERBS.values() for option in options_in(command)}
    assert {field for fields in MEANINGS.values() for field in fields} <= ours
    assert not MEANINGS.keys() & REMARKS.keys()
