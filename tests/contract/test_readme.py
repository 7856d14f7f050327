"""README's tables and commands are the program's."""

import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest
import tyro
import yaml
from tests.azure_job import pytorch_job

from train_pytorch_model.__main__ import VERBS
from train_pytorch_model.commands.submit import Submit
from train_pytorch_model.config import DISPLAY_NAMES, TrainConfig, flag
from train_pytorch_model.formats.plain_folders import SUFFIXES
from train_pytorch_model.image_classifier.architectures import FAMILY_OF
from train_pytorch_model.launch import LaunchError, Worker, decide
from train_pytorch_model.recipe import Recipe

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def rows(header: str) -> list[list[str]]:
    """The cells of the table under a header line."""
    _, _, rest = README.partition(header + "\n")
    lines = rest.splitlines()[1:]
    table = lines[: next(i for i, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def commands() -> list[str]:
    """The lines of shell that call the program."""
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith("python -m")]


def test_the_parameter_table_is_train_config() -> None:
    config = TrainConfig()
    table = rows("| parameter | flag | range | default | meaning |")
    assert [(name, flag_, default) for name, flag_, _, default, _ in table] == [
        (DISPLAY_NAMES[f.name], f"`{flag(f.name)}`", str(getattr(config, f.name)))
        for f in fields(TrainConfig)
    ]


def test_the_ranges_in_the_table_are_the_components() -> None:
    inputs = yaml.safe_load((ROOT / "component.yaml").read_text())["inputs"]
    lowest = {"> 0": 1, ">= 0": 0, "> 0, finite": 5e-324, "any integer": None}
    for _, flag_, range_, _, _ in rows("| parameter | flag | range | default | meaning |"):
        name = flag_.strip("`-").replace("-", "_")
        assert inputs[name].get("min") == lowest[range_]


def test_the_recipe_table_has_every_entry() -> None:
    table = rows("| option of `init-model` | default | meaning |")
    options = [option for cell, _, _ in table for option in re.findall(r"--([\w-]+)", cell)]
    assert [option.removeprefix("no-").replace("-", "_") for option in options] == [
        field.name for field in fields(Recipe)
    ]


def test_the_verbs_are_the_programs() -> None:
    assert {cell.strip("`") for cell, _ in rows("| verb | does |")} == set(VERBS)


def test_every_architecture_and_suffix_is_listed() -> None:
    text = " ".join(README.split())
    assert f"Architectures: {', '.join(FAMILY_OF)}." in text
    listed = re.search(r"listed by the suffixes ([.\w ]+) in any case", text)
    assert listed is not None
    assert set(listed[1].split()) == SUFFIXES


@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_readme_parses(command: str) -> None:
    _, _, module, verb, *arguments = shlex.split(command)
    assert module == "train_pytorch_model"
    tyro.cli(VERBS[verb], args=arguments)


def test_node_count_and_process_count_do_what_the_table_says() -> None:
    for nodes, per_node, expected in rows(
        "| *Node count* | *Process count per node* | processes in all, on nodes of four GPUs |"
    ):
        try:
            part = decide(pytorch_job(int(nodes), int(per_node), "10.0.0.4")[0], num_gpus=4)
        except LaunchError:
            assert expected == "refused"
        else:
            size = part.size if isinstance(part, Worker) else part.num_nodes * part.num_processes
            assert expected == str(size)


def test_what_the_yaml_files_name_is_made_by_a_command() -> None:
    """Data and models by `az ml … create --name`; `submit` makes the cluster."""
    made = set(re.findall(r"az ml (?:data|model) create --name ([\w-]+) --version 1", README))
    components = ROOT / "src" / "train_pytorch_model" / "components"
    texts = [README, *(path.read_text() for path in components.rglob("*.yaml"))]
    named = {
        name
        for text in texts
        for name in re.findall(r"(?:path:|model:|--input|archive\.path=) ?azureml:([\w-]+):1", text)
    }
    assert named == made
    clusters = {name for text in texts[1:] for name in re.findall(r"comput\w*: azureml:([\w-]+)", text)}
    assert clusters == {Submit.compute}


def test_the_gate_runs_the_readmes_own_command() -> None:
    first, second = re.findall(r"^python3 -m venv .*$", README, re.MULTILINE)
    assert first.endswith("-m train_pytorch_model quickstart")
    assert second.endswith("-m pytest")
