"""What the processor can compute."""

from pathlib import Path

import pytest

from train_pytorch_model.machine.cpu_features import cpu_has_bfloat16


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("processor : 0\nflags\t\t: fpu avx512_bf16 sse\n", True),
        ("flags : fpu amx_bf16\n", True),
        ("flags : fpu avx512f avx512_bf16x\n", False),
        ("processor : 0\n", False),
        (None, False),
    ],
)
def test_bfloat16_support_is_read_from_the_cpu_flags(
    tmp_path: Path, text: str | None, expected: bool
) -> None:
    path = tmp_path / "cpuinfo"
    if text is not None:
        path.write_text(text)
    assert cpu_has_bfloat16(path) is expected
