"""How messages name parameters."""

import pytest

from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.config.wording import (
    assignment,
    bulleted,
    counted,
    flag,
    for_command_line,
    for_fit,
    parameter,
    quoted,
    visible,
    visible_lines,
    with_init_model,
)


def test_parameters_are_named_as_the_user_gives_them() -> None:
    assert (parameter("warmup_epochs"), parameter("batch_size")) == (
        "--warmup-step-number",
        "--batch-size",
    )
    assert assignment("batch_size", 8) == "`--batch-size 8`"
    assert quoted("pretrained", "init-model") == "`init-model --pretrained`"
    assert quoted("pretrained") == "`--pretrained`"
    with for_command_line(False):  # as in Python, where nothing has been set
        assert parameter("batch_size") == "`batch_size`"
        assert assignment("batch_size", 8) == "`batch_size=8`"
        assert quoted("pretrained", "init-model") == "`pretrained`"
    assert all(hasattr(TrainConfig, name) for name in ("warmup_epochs", "batch_size"))
    assert flag("output_1") == "--output-1"
    with pytest.raises(AssertionError, match="an option"):  # it would become ----output
        parameter("--output")


def test_messages_of_fit_name_its_own_parameters() -> None:
    assert parameter("trained_model") == "--trained-model"
    assert with_init_model("In init-model, give", "Give") == "In init-model, give"
    with for_fit():
        assert parameter("trained_model") == "--output"
        assert quoted("trained_model") == "`--output`"
        assert quoted("pretrained", "init-model") == "`--pretrained`"
        assert with_init_model("In init-model, give", "Give") == "Give"
        with for_command_line(False):
            assert parameter("trained_model") == "`output`"


def test_numbers_take_singular_and_plural() -> None:
    assert [counted(count, "step", "steps") for count in (0, 1, 2000)] == [
        "0 steps",
        "1 step",
        "2,000 steps",
    ]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("bird\x1b[2J\x1b]0;owned\x07", "bird\\x1b[2J\\x1b]0;owned\\x07"),
        ("a\nError: b\r\tc", "a\\nError: b\\r\\tc"),
        ("photo\u202egpj.exe\u2028\x9b2J\udcff", "photo\\u202egpj.exe\\u2028\\x9b2J\\udcff"),
        (
            "Vögel, ソファ, x\u200cy, 👩\u200d🚀\u00a0",
            "Vögel, ソファ, x\u200cy, 👩\u200d🚀\u00a0",
        ),
    ],
)
def test_what_is_no_visible_character_of_a_name_is_shown_as_text(name: str, shown: str) -> None:
    assert visible(name) == shown
    assert bulleted([name]) == f"\n  {shown}"
    assert visible_lines(f"first\n{name[:5]}") == f"first\n{visible_lines(name[:5])}"
