"""The components of the verbs and the pipeline agree with the program; azure-ai-ml validates them
offline.
"""

import json
import re
import shlex
import subprocess
import sys
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import tyro
import yaml

from train_pytorch_model import __version__
from train_pytorch_model.commands.parsing import without_boolean_values
from train_pytorch_model.commands.verbs import VERBS
from train_pytorch_model.config.recipe import Recipe

ROOT = Path(__file__).parents[2]
COMPONENTS = ROOT / "src" / "train_pytorch_model" / "components"
SPECS: dict[str, dict[str, Any]] = {
    path.stem: spec
    for path in sorted(COMPONENTS.glob("*.yaml"))
    if (spec := yaml.safe_load(path.read_text()))["type"] == "command"
}
PIPELINE = yaml.safe_load((COMPONENTS / "pipeline.yaml").read_text())
BLOCK = yaml.safe_load((COMPONENTS / "photographs_to_model.yaml").read_text())
LINK = re.compile(r"\[[^]]+\]\(https://[\w.-]+(/[\w.-]+)+\)")  # in Markdown
NOT_COMPONENTS = {
    "train",
    "submit",
    "quickstart",
    "review",
}  # train has component.yaml, two run on a workstation
SAMPLE = {
    "string": "text",
    "integer": "1",
    "number": "0.5",
    "boolean": "True",
    "uri_file": "a file/my 1.zip",
}

# One process for all files: the client takes seconds to load, and sets up telemetry and logging.
LOAD = """
import json, sys, warnings
warnings.simplefilter("ignore")
from azure.ai.ml import load_component, load_job
found = {}
for path in sys.argv[2:]:
    component = load_component(source=path)
    result = component._validate()
    rest = component._to_rest_object().properties.component_spec
    defaults = {
        name: port._parse_and_validate(str(port.default))
        for name, port in component.inputs.items() if port.default is not None
    }
    found[path] = {
        "passed": result.passed, "errors": result.error_messages,
        "inputs": list(component.inputs), "defaults": defaults,
        "code": rest.get("code"), "jobs": list(getattr(component, "jobs", {})),
    }
job = load_job(source=sys.argv[1])
result = job._validate()
found["pipeline"] = {
    "passed": result.passed, "errors": result.error_messages, "jobs": list(job.jobs),
}
print(json.dumps(found, default=str))
"""


@pytest.fixture(scope="module")
def loaded() -> dict[str, Any]:
    """What azure-ai-ml reads, by file name."""
    paths = [str(COMPONENTS / f"{name}.yaml") for name in (*SPECS, "photographs_to_model")]
    result = subprocess.run(
        [sys.executable, "-c", LOAD, str(COMPONENTS / "pipeline.yaml"), *paths],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return {Path(path).stem: found for path, found in document.items()}


def verb_of(spec: dict[str, Any]) -> str:
    program, verb = spec["command"].split()[2:4]
    assert program == "train_pytorch_model"
    return str(verb)


def defaults_of(command: type) -> dict[str, Any]:
    """Option → default of a verb, including its groups of options."""
    found: dict[str, Any] = {}
    for field in fields(command):
        factory = cast(Any, field.default_factory)
        if isinstance(factory, type) and is_dataclass(factory):
            found |= defaults_of(factory)
        else:
            names = {"kind": "format", "warmup_epochs": "warmup_step_number"}
            found[names.get(field.name, field.name)] = field.default
    return found


def optional_inputs(spec: dict[str, Any]) -> list[str]:
    """The names of the inputs that may be left out."""
    return [name for name, port in spec["inputs"].items() if port.get("optional")]


TOGETHER = {"mean": "std", "std": "mean"}
"""Optional inputs that are given with another, or not at all."""


def filled(spec: dict[str, Any], optional: str | None) -> list[str]:
    """The arguments after the verb as Azure fills them in, with at most one optional input."""
    values = {name: sample(port) for name, port in spec["inputs"].items()}
    names = "|".join(filter(None, (optional, TOGETHER.get(optional or ""))))
    command = re.sub(
        r"\$\[\[(.*?)\]\]",
        lambda match: match[1] if re.search(rf"inputs\.({names})}}", match[1]) else "",
        spec["command"],
    )
    command = re.sub(r"\$\{\{inputs\.(\w+)\}\}", lambda match: values[match[1]], command)
    command = re.sub(r"\$\{\{outputs\.(\w+)\}\}", r"out/\1", command)
    return shlex.split(command)[4:]  # as the shell of a job does


def sample(port: dict[str, Any]) -> str:
    """A valid value for the port."""
    if "Three numbers" in port["description"]:
        return "0.5 0.5 0.5"
    if "enum" in port:
        return str(port["enum"][0])
    return str(port.get("default", port.get("min", SAMPLE.get(port["type"], "path"))))


def test_every_verb_of_the_chain_has_a_component() -> None:
    assert {verb_of(spec) for spec in SPECS.values()} == set(VERBS) - NOT_COMPONENTS


@pytest.mark.parametrize("name", SPECS)
def test_azure_loads_and_validates_a_component(name: str, loaded: dict[str, Any]) -> None:
    assert loaded[name]["passed"], loaded[name]["errors"]
    assert loaded[name]["inputs"] == list(SPECS[name]["inputs"])
    written = {
        key: port["default"] for key, port in SPECS[name]["inputs"].items() if "default" in port
    }
    assert loaded[name]["defaults"] == written


@pytest.mark.parametrize("name", SPECS)
def test_the_command_of_a_component_parses_into_its_verb(name: str) -> None:
    spec = SPECS[name]
    command = VERBS[verb_of(spec)]
    # `convert` needs exactly one of its two optional inputs.
    alone = set(optional_inputs(spec))
    if name == "convert":
        alone -= {"images_of_list", "corrections"}
    for optional in (*([] if name == "convert" else [None]), *sorted(alone)):
        arguments = without_boolean_values(filled(spec, optional), command)
        tyro.cli(command, args=arguments)


def test_a_model_can_be_made_in_a_pipeline_with_every_entry_of_the_recipe() -> None:
    assert {entry.name for entry in fields(Recipe)} <= set(SPECS["init_model"]["inputs"])


@pytest.mark.parametrize("name", SPECS)
def test_the_defaults_of_a_component_match_its_verb(name: str) -> None:
    spec = SPECS[name]
    defaults = defaults_of(VERBS[verb_of(spec)])
    for key, port in spec["inputs"].items():
        is_required = defaults.get(key) is MISSING
        if "default" in port and not is_required and (key, port["default"]) != ("pretrained", True):
            # In a pipeline, as in the designer, weights are pretrained by default.
            default = defaults[key]
            is_tuple = isinstance(default, tuple)
            assert port["default"] == (" ".join(map(str, default)) if is_tuple else default), key


@pytest.mark.parametrize("name", SPECS)
def test_a_component_uses_every_input_and_optional_ones_within_brackets(name: str) -> None:
    spec = SPECS[name]
    optional = set(
        re.findall(r"inputs\.(\w+)", "".join(re.findall(r"\$\[\[(.*?)\]\]", spec["command"])))
    )
    used = set(re.findall(r"\$\{\{inputs\.(\w+)\}\}", spec["command"]))
    assert used == set(spec["inputs"])
    assert optional == set(optional_inputs(spec))
    assert set(re.findall(r"\$\{\{outputs\.(\w+)\}\}", spec["command"])) == set(spec["outputs"])


@pytest.mark.parametrize("name", SPECS)
def test_a_component_is_described_and_names_folders_that_exist(name: str) -> None:
    spec = SPECS[name]
    assert spec["version"] == __version__
    assert LINK.search(spec["description"])
    for port in (*spec["inputs"].values(), *spec["outputs"].values()):
        assert port["description"].rstrip().endswith(".")
    assert (COMPONENTS / spec["code"] / "train_pytorch_model" / "__main__.py").is_file()
    assert (COMPONENTS / spec["environment"]["build"]["path"] / "Dockerfile").is_file()
    assert "environment_variables" not in spec


def test_azure_validates_the_pipeline(loaded: dict[str, Any]) -> None:
    assert loaded["pipeline"]["passed"], loaded["pipeline"]["errors"]
    assert loaded["pipeline"]["jobs"] == list(PIPELINE["jobs"])


def test_the_pipeline_names_inputs_and_outputs_that_its_components_have() -> None:
    # Azure silently drops an unknown input name.
    ports = {}
    for name, job in PIPELINE["jobs"].items():
        spec = yaml.safe_load((COMPONENTS / job["component"]).read_text())
        assert set(job.get("inputs", {})) <= set(spec["inputs"]), name
        required = {
            key
            for key, port in spec["inputs"].items()
            if not port.get("optional") and "default" not in port
        }
        assert required <= set(job.get("inputs", {})), name
        ports[name] = spec["outputs"]
    for job in PIPELINE["jobs"].values():
        for value in job.get("inputs", {}).values():
            if reference := re.fullmatch(
                r"\$\{\{parent\.jobs\.(\w+)\.outputs\.(\w+)\}\}", str(value)
            ):
                assert reference[2] in ports[reference[1]]
            elif reference := re.fullmatch(r"\$\{\{parent\.inputs\.(\w+)\}\}", str(value)):
                assert reference[1] in PIPELINE["inputs"]


def test_one_block_makes_a_model_on_nodes_given_as_inputs(loaded: dict[str, Any]) -> None:
    found = loaded["photographs_to_model"]
    assert found["passed"], found["errors"]
    assert found["inputs"] == list(BLOCK["inputs"])
    assert BLOCK["version"] == __version__
    assert LINK.search(BLOCK["description"])
    assert LINK.search(PIPELINE["description"])
    ((name, job),) = BLOCK["jobs"].items()
    assert found["jobs"] == [name]
    used = set(re.findall(r"parent\.inputs\.(\w+)", json.dumps(job)))
    assert used == set(BLOCK["inputs"])
    inner = SPECS["fit"]["inputs"]
    for key in job["inputs"]:
        assert {part: BLOCK["inputs"][key].get(part) for part in ("type", "default", "min")} == {
            part: inner[key].get(part) for part in ("type", "default", "min")
        }


def test_a_model_fits_every_port_that_takes_one() -> None:
    """Classic directories are no MLflow models, and a trained one may be trained further."""
    component = yaml.safe_load((ROOT / "component.yaml").read_text())
    ports = [
        component["inputs"]["untrained_model"],
        SPECS["init_model"]["outputs"]["untrained_model"],
    ]
    ports += [SPECS[name]["inputs"]["trained_model"] for name in ("score", "evaluate", "export")]
    assert {port["type"] for port in ports} == {"uri_folder"}
    assert component["outputs"]["trained_model"]["type"] == "mlflow_model"
