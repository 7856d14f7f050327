"""Endpoints, sweep, environment and uploaded files, as azure-ai-ml reads them offline."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.readme import commands_of

from train_pytorch_model import __version__
from train_pytorch_model.azure.job_folder import MODEL_OUTPUT
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.formats.writing import write_yaml
from train_pytorch_model.image_classifier.architectures import FAMILY_OF
from train_pytorch_model.publishing.model_card import registration

ROOT = Path(__file__).parents[2]
COMPONENTS = ROOT / "src" / "train_pytorch_model" / "components"
ENDPOINTS = COMPONENTS / "endpoints"
SWEEP: dict[str, Any] = yaml.safe_load((COMPONENTS / "sweep.yaml").read_text())
NODE = SWEEP["jobs"]["sweep"]
TRIAL: dict[str, Any] = yaml.safe_load((COMPONENTS / NODE["trial"]).read_text())

# One process for all files: the client takes seconds to load, and sets up telemetry and logging.
LOAD = """
import json, sys, warnings
warnings.simplefilter("ignore")
from azure.ai.ml import load_batch_endpoint, load_environment, load_job, load_model
from azure.ai.ml import load_online_deployment, load_online_endpoint
from azure.ai.ml._utils._asset_utils import get_ignore_file, get_upload_files_from_folder
from azure.ai.ml.entities._load_functions import load_model_batch_deployment

root, source, registration = sys.argv[1:]
components = source + "/train_pytorch_model/components/"
endpoints = components + "endpoints/"
online, batch = "online_endpoint.yaml", "batch_endpoint.yaml"
sweep = load_job(source=components + "sweep.yaml")
result = sweep._validate()
model = load_model(source=registration)
environment = load_environment(source=root + "/environment/environment.yaml")
uploaded = get_upload_files_from_folder(source, prefix="", ignore_file=get_ignore_file(source))
print(json.dumps({
    "online_endpoint":
        load_online_endpoint(source=endpoints + online)._to_rest_online_endpoint("here"),
    "online_deployment": load_online_deployment(
        source=endpoints + "online_deployment.yaml")._to_rest_object("here"),
    "batch_endpoint": load_batch_endpoint(source=endpoints + batch)._to_rest_batch_endpoint("here"),
    "batch_deployment": load_model_batch_deployment(
        source=endpoints + "batch_deployment.yaml")._to_rest_object("here"),
    "sweep": {"passed": result.passed, "errors": result.error_messages,
              "rest": sweep._to_rest_object().properties.jobs["sweep"]},
    "environment": {"name": environment.name, "version": environment.version,
                    "path": str(environment.path)},
    "model": {"type": model.type, "path": str(model.path), "description": model.description,
              "tags": model.tags},
    "uploaded": [name for _, name in uploaded],
}, default=lambda value: value.as_dict() if hasattr(value, "as_dict") else str(value)))
"""


def test_the_pages_invoke_a_batch_deployment_by_its_name() -> None:
    """`az ml batch-deployment create --set-default` sets nothing in some versions."""
    deployment = yaml.safe_load((ENDPOINTS / "batch_deployment.yaml").read_text())
    commands = commands_of("On Azure ML")
    (words,) = (words for words in commands if words[2:4] == ["batch-endpoint", "invoke"])
    assert words[words.index("--deployment-name") + 1] == deployment["name"]
    assert not any("--set-default" in words for words in commands)


FACTS = {
    **{"task": "image-classification", "base_model_name": "resnet18", "num_categories": 3},
    **{"validation_accuracy": 0.75, "validation_images": 8},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained directory with what registers it, and nothing else."""
    folder = tmp_path_factory.mktemp("trained")
    write_yaml(folder / "azureml_model.yaml", registration(FACTS, "# A card\n\n| a | „table“ |\n"))
    return folder


@pytest.fixture(scope="module")
def loaded(trained: Path) -> dict[str, Any]:
    """What azure-ai-ml reads from the files."""
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            LOAD,
            str(ROOT),
            str(ROOT / "src"),
            str(trained / "azureml_model.yaml"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return document


def test_the_online_deployment_serves_the_mlflow_model_without_code(loaded: dict[str, Any]) -> None:
    properties = loaded["online_deployment"]["properties"]
    assert properties["model"] == "trained-model:1"
    assert properties["requestSettings"] == {
        "requestTimeout": "PT1M30S",
        "maxConcurrentRequestsPerInstance": 1,
    }
    for probe in ("livenessProbe", "readinessProbe"):
        assert properties[probe]["initialDelay"] == properties[probe]["period"] == "PT3M"
        assert properties[probe]["failureThreshold"] == 49
    assert not {"codeConfiguration", "environmentId"} & set(properties)
    assert loaded["online_endpoint"]["properties"]["authMode"] == "Key"


def test_the_batch_deployment_scores_a_file_at_a_time_without_code(loaded: dict[str, Any]) -> None:
    properties = loaded["batch_deployment"]["properties"]
    assert (properties["miniBatchSize"], properties["maxConcurrencyPerInstance"]) == (1, 1)
    assert (properties["outputAction"], properties["outputFileName"]) == (
        "AppendRow",
        "predictions.csv",
    )
    assert properties["errorThreshold"] == 0
    assert properties["retrySettings"] == {"maxRetries": 1, "timeout": "PT1H"}
    assert not {"codeConfiguration", "environmentId"} & set(properties)
    assert loaded["batch_endpoint"]["properties"]["authMode"] == "aadToken"


def test_a_trained_directory_is_registered_with_its_card_and_tags(
    loaded: dict[str, Any], trained: Path
) -> None:
    assert loaded["model"] == {
        "type": "mlflow_model",
        "path": str(trained),
        "description": "# A card\n\n| a | „table“ |\n",
        "tags": {name: str(value) for name, value in FACTS.items()},
    }


@pytest.mark.parametrize("kind", ["online", "batch"])
def test_a_deployment_belongs_to_the_endpoint_beside_it(kind: str) -> None:
    endpoint = yaml.safe_load((ENDPOINTS / f"{kind}_endpoint.yaml").read_text())
    deployment = yaml.safe_load((ENDPOINTS / f"{kind}_deployment.yaml").read_text())
    assert deployment["endpoint_name"] == endpoint["name"]


def test_azure_validates_the_sweep(loaded: dict[str, Any]) -> None:
    assert loaded["sweep"]["passed"], loaded["sweep"]["errors"]
    rest = loaded["sweep"]["rest"]
    assert set(rest["search_space"]) == set(NODE["search_space"])
    assert rest["objective"] == NODE["objective"]
    assert rest["trial"]["properties"]["componentSpec"]["display_name"] == TRIAL["display_name"]


def test_the_sweep_covers_every_training_parameter_and_searches_no_seed() -> None:
    given = {*NODE["inputs"], *NODE["search_space"]}
    assert given == set(TRIAL["inputs"]) - {"from_scratch", "corrections", "minutes"}
    assert {*TrainConfig().as_params()} - given == {"print_frequency"}
    assert "random_seed" in NODE["inputs"]
    assert NODE["inputs"]["architecture"] in FAMILY_OF  # a race chooses it better than a sweep
    assert not set(NODE["inputs"]) & set(NODE["search_space"])
    assert list(NODE["outputs"]) == list(SWEEP["outputs"]) == [MODEL_OUTPUT]


def test_every_point_of_the_search_space_is_in_range() -> None:
    fields = {
        name.replace("warmup_step_number", "warmup_epochs"): name
        for name in TrainConfig().as_params()
    }
    for field, name in fields.items():
        space = NODE["search_space"].get(name, {"values": [NODE["inputs"].get(name)]})
        for value in space.get("values", [0.0001, 0.02]):
            changes: dict[str, Any] = {} if value is None else {field: value}
            TrainConfig(**changes)
    assert NODE["search_space"]["learning_rate"]["type"] == "loguniform"


def test_the_metric_of_the_sweep_is_one_that_training_logs() -> None:
    metric = NODE["objective"]["primary_metric"]
    assert NODE["objective"]["goal"] == "minimize"
    sources = (ROOT / "src" / "train_pytorch_model").rglob("*.py")
    assert any(f'"{metric}": ' in source.read_text() for source in sources)


def test_the_environment_is_built_from_the_dockerfile_beside_it(loaded: dict[str, Any]) -> None:
    assert loaded["environment"] == {
        "name": "train-pytorch-model",
        "version": __version__,
        "path": str(ROOT / "environment"),
    }
    assert (ROOT / "environment" / "Dockerfile").is_file()


def test_a_component_uploads_the_program_and_nothing_else(loaded: dict[str, Any]) -> None:
    source = ROOT / "src"
    program = {
        path.relative_to(source).as_posix()
        for path in (source / "train_pytorch_model").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }
    assert {name.lstrip("/") for name in loaded["uploaded"]} == program | {".amlignore"}
