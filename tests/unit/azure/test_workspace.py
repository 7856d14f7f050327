"""The workspace that a submission goes to: where it is found, and what is refused."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from train_pytorch_model.azure.workspace import Workspace
from train_pytorch_model.errors import ParameterError

FLAGS: Mapping[str, str | None] = {
    "subscription_id": None,
    "resource_group": None,
    "workspace_name": None,
}
CONFIG = '{"subscription_id": "s", "resource_group": "g", "workspace_name": "w", "more": 1}'


def find(start: Path, config: Path | None = None, **flags: str) -> Workspace:
    return Workspace.find({**FLAGS, **flags}, config, {}, start)


def test_flags_override_the_environment_and_that_the_config_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(CONFIG)
    environment = {"AZUREML_ARM_RESOURCEGROUP": "group", "AZUREML_ARM_WORKSPACE_NAME": "workspace"}
    found = Workspace.find({**FLAGS, "workspace_name": "mine"}, None, environment, tmp_path)
    assert found == Workspace("s", "group", "mine")


def test_workspace_flags_are_complete_and_quoted_for_a_shell() -> None:
    assert Workspace("s-1", "flowers(test)", "w").flags() == (
        "--subscription s-1 --resource-group 'flowers(test)' --workspace-name w"
    )


def test_an_explicit_config_file_overrides_the_environment(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(
        '{"subscription_id": "", "resource_group": "g", "workspace_name": "w"}'
    )
    environment = dict.fromkeys(
        ("AZUREML_ARM_SUBSCRIPTION", "AZUREML_ARM_RESOURCEGROUP", "AZUREML_ARM_WORKSPACE_NAME"),
        "environment",
    )
    flags = {**FLAGS, "workspace_name": "mine"}
    found = Workspace.find(flags, tmp_path / "other.json", environment, tmp_path)
    assert found == Workspace("environment", "g", "mine")


@pytest.mark.parametrize("place", ["config.json", ".azureml/config.json", "../config.json"])
def test_a_config_file_is_found_in_this_directory_and_its_parents(
    place: str, tmp_path: Path
) -> None:
    start = tmp_path / "project" / "folder"
    (start / ".azureml").mkdir(parents=True)
    (start / place).write_text(CONFIG)
    assert find(start) == Workspace("s", "g", "w")


def test_a_config_file_of_another_program_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(CONFIG)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"architectures": ["ResNet"]}')
    assert find(tmp_path / "model") == Workspace("s", "g", "w")


def test_a_config_file_can_be_given_explicitly(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(CONFIG)
    assert find(tmp_path / "nowhere", tmp_path / "other.json", workspace_name="v") == Workspace(
        "s", "g", "v"
    )


def test_flags_alone_read_no_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("not JSON")
    flags: dict[str, str | None] = {
        "subscription_id": "s",
        "resource_group": "g",
        "workspace_name": "w",
    }
    assert Workspace.find(flags, None, {}, tmp_path) == Workspace("s", "g", "w")


def test_missing_parts_of_the_workspace_are_listed(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"resource_group": "g", "workspace_name": ""}')
    with pytest.raises(ParameterError) as caught:
        find(tmp_path)
    assert str(caught.value) == (
        "The workspace is not fully specified. Missing are:\n  --subscription-id or"
        " AZUREML_ARM_SUBSCRIPTION"
        "\n  --workspace-name or AZUREML_ARM_WORKSPACE_NAME"
        "\nOr download the workspace's config.json from the portal into this directory."
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            None,
            "--config {path}: config.json is missing. It should hold subscription_id,"
            " resource_group and",
        ),
        ("{", "--config {path}: config.json is not as expected: "),
        (
            '{"subscription_id": 7}',
            "--config {path}: config.json is not as expected: Expected `str`",
        ),
    ],
)
def test_an_invalid_config_file_is_refused(
    content: str | None, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ParameterError) as caught:
        find(tmp_path, path)
    assert str(caught.value).startswith(message.format(path=path))
    if content is not None:
        with pytest.raises(ParameterError, match=f"^{path}: config.json is not as expected"):
            find(tmp_path)
