from types import SimpleNamespace

import pytest

from train_pytorch_model.networks.licences import describe_licence, is_restricted, licence_of


def test_licences_of_torchvision_are_stated() -> None:
    assert licence_of("resnet18") == "bsd-3-clause"
    swag = SimpleNamespace(meta={"license": "https://github.com/facebookresearch/SWAG/LICENSE"})
    assert licence_of("vit_b_16", swag) == "cc-by-nc-4.0"


@pytest.mark.parametrize(
    ("architecture", "licence"),
    [
        ("timm:vit_small_patch14_dinov2.lvd142m", "apache-2.0"),
        ("timm:vit_small_patch16_dinov3.lvd1689m", "dinov3-license"),
        ("timm:convnextv2_tiny.fcmae", "cc-by-nc-4.0"),
        ("timm:test_efficientnet.r160_in1k", "apache-2.0"),
    ],
)
def test_licences_of_timm_are_those_that_it_records(architecture: str, licence: str) -> None:
    assert licence_of(architecture) == licence


@pytest.mark.parametrize(
    ("licence", "expected"),
    [
        ("mit", False),
        ("apache-2.0", False),
        ("bsd-3-clause", False),
        ("", False),
        ("cc-by-nc-4.0", True),
        ("dinov3-license", True),
        ("fair-noncommercial-research-license", True),
        ("apple-amlr", True),
    ],
)
def test_licences_that_do_not_allow_every_use_are_known(licence: str, expected: bool) -> None:
    assert is_restricted(licence) == expected
    assert ("does not allow every use" in describe_licence(licence)) == expected
