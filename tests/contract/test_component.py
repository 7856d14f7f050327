"""component.yaml agrees with TrainConfig, the command line and azure-ai-ml.

azure-ai-ml validates offline but accepts many errors; these tests check for those it misses.
"""

import re
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import tyro
import yaml

from train_pytorch_model import __version__
from train_pytorch_model.commands.train import Train
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.config.wording import display_name, flag
from train_pytorch_model.errors import ParameterError

ROOT = Path(__file__).parents[2]
COMPONENT: dict[str, Any] = yaml.safe_load((ROOT / "component.yaml").read_text())
PORTS = ["untrained_model", "training_dataset", "validation_dataset"]
PARAMETERS = {name: spec for name, spec in COMPONENT["inputs"].items() if name not in PORTS}
FIELD_OF = {flag(field.name)[2:].replace("-", "_"): field for field in fields(TrainConfig)}
TYPES = {int: "integer", float: "number"}

# Loads the component as Azure's client does and prints the result. It runs in a separate process,
# because the client sets up telemetry and logging on import.
LOAD = """
import json, logging, sys, warnings
warnings.simplefilter("ignore")
from azure.ai.ml import load_component
by_name = {"environment": "azureml:train-pytorch-model:0.1.0"}  # --set of az ml component create
named = load_component(source="component.yaml", params_override=[by_name])
component = load_component(source="component.yaml")
result = component._validate()
assert result.passed, result.error_messages
defaults = {
    name: port._parse_and_validate(str(port.default))
    for name, port in component.inputs.items() if port.default is not None
}
rest = component._to_rest_object().properties.component_spec
print(json.dumps({
    "inputs": list(component.inputs), "outputs": list(component.outputs), "defaults": defaults,
    "rest": rest, "build": str(component.environment.build.path), "named": named.environment,
}, default=str))
"""


@pytest.fixture(scope="module")
def loaded() -> dict[str, Any]:
    """What azure-ai-ml reads from component.yaml, offline."""
    result = subprocess.run(
        [sys.executable, "-c", LOAD], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    document: dict[str, Any] = yaml.safe_load(result.stdout.splitlines()[-1])
    return document


def test_azure_loads_and_validates_the_component(loaded: dict[str, Any]) -> None:
    assert loaded["inputs"] == [*PORTS, *FIELD_OF]
    assert loaded["outputs"] == ["trained_model"]


def test_azure_parses_the_same_defaults_as_the_program(loaded: dict[str, Any]) -> None:
    config = TrainConfig()
    assert loaded["defaults"] == {
        name: getattr(config, field.name) for name, field in FIELD_OF.items()
    }


def test_the_environment_is_built_unless_a_name_is_set(loaded: dict[str, Any]) -> None:
    """A workspace that does not have it yet would refuse a name in the file."""
    assert Path(loaded["build"]).samefile(ROOT / "environment")
    assert loaded["named"] == "train-pytorch-model:0.1.0"


def test_nothing_is_dropped_on_the_way_to_azure(loaded: dict[str, Any]) -> None:
    rest = loaded["rest"]
    assert rest["resources"] == {"instance_count": 1, "shm_size": "8g"} | {
        key: value
        for key, value in rest["resources"].items()
        if key not in ("instance_count", "shm_size")
    }
    assert rest["distribution"]["type"].lower() == "pytorch"
    assert rest["distribution"]["process_count_per_instance"] == 1
    assert rest["is_deterministic"] is False
    assert float(rest["inputs"]["learning_rate"]["min"]) == 5e-324
    assert rest["command"] == COMPONENT["command"]


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_parameter_is_the_same_in_the_component_and_in_the_program(name: str) -> None:
    spec, field = PARAMETERS[name], FIELD_OF[name]
    default = getattr(TrainConfig(), field.name)
    assert spec["type"] == TYPES[type(default)]
    assert spec["default"] == default
    assert type(spec["default"]) is type(default)  # Azure truncates an integer default of 5.5


@pytest.mark.parametrize("name", [name for name in PARAMETERS if name != "random_seed"])
def test_azure_and_the_program_accept_the_same_minimum(name: str) -> None:
    field, lowest = FIELD_OF[name].name, PARAMETERS[name]["min"]
    below = 0.0 if name == "learning_rate" else lowest - 1
    least: dict[str, Any] = {field: lowest}
    less: dict[str, Any] = {field: below}
    replace(TrainConfig(), **least)
    with pytest.raises(ParameterError, match=f'Parameter "{display_name(field)}" value should be'):
        replace(TrainConfig(), **less)


def test_any_seed_is_accepted() -> None:
    assert "min" not in PARAMETERS["random_seed"]
    assert TrainConfig(random_seed=-(2**70)).random_seed == -(2**70)


def test_every_port_and_parameter_is_described_and_named_in_the_designers_order() -> None:
    assert list(COMPONENT["inputs"]) == [*PORTS, *FIELD_OF]
    for spec in (*COMPONENT["inputs"].values(), *COMPONENT["outputs"].values()):
        assert spec["description"].strip()
        assert spec["description"].rstrip().endswith(".")


def test_the_command_names_every_input_and_output_once_and_nothing_else() -> None:
    command = COMPONENT["command"]
    named = re.findall(r"\$\{\{(inputs|outputs)\.(\w+)\}\}", command)
    expected = [("inputs", name) for name in COMPONENT["inputs"]] + [("outputs", "trained_model")]
    assert sorted(named) == sorted(expected)
    assert command.count("${{") == len(named)
    assert "$[[" not in command  # an optional input would need a default in the program


def test_the_command_parses_into_the_component_s_defaults() -> None:
    arguments = COMPONENT["command"].split()
    assert arguments[:3] == ["python", "-m", "train_pytorch_model.run"]
    values = {name: str(spec["default"]) for name, spec in PARAMETERS.items()}
    filled = [
        re.sub(
            r"\$\{\{\w+\.(\w+)\}\}", lambda match: values.get(match[1], f"in/{match[1]}"), argument
        )
        for argument in arguments[3:]
    ]
    assert tyro.cli(Train, args=filled) == Train(
        untrained_model=Path("in/untrained_model"),
        training_dataset=Path("in/training_dataset"),
        validation_dataset=Path("in/validation_dataset"),
        trained_model=Path("in/trained_model"),
    )


def test_the_component_matches_the_documentation() -> None:
    assert COMPONENT["display_name"] == "Train PyTorch Model"
    assert "/component-reference/train-pytorch-model)" in COMPONENT["description"]
    assert COMPONENT["version"] == __version__
    assert {name: COMPONENT["inputs"][name]["type"] for name in PORTS} == {
        "untrained_model": "uri_folder",
        "training_dataset": "uri_folder",
        "validation_dataset": "uri_folder",
    }
    assert COMPONENT["outputs"]["trained_model"]["type"] == "mlflow_model"
    assert set(COMPONENT["resources"]) == {"instance_count", "shm_size"}  # a typo drops the block
    assert "environment_variables" not in COMPONENT  # silently dropped


def test_the_folders_named_by_the_component_exist() -> None:
    assert (ROOT / COMPONENT["code"] / "train_pytorch_model" / "run.py").is_file()
    assert (ROOT / COMPONENT["environment"]["build"]["path"] / "Dockerfile").is_file()
