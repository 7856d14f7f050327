"""Threads that give way to the training thread."""

import sys

import pytest

from train_pytorch_model.machine.priority import SWITCH_S, short_switch_interval


def test_the_switch_interval_is_shortened_temporarily() -> None:
    before = sys.getswitchinterval()
    with short_switch_interval():
        assert sys.getswitchinterval() == pytest.approx(SWITCH_S, rel=0.01)
    assert sys.getswitchinterval() == before
