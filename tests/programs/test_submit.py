"""`submit` with the real azure-ai-ml: its validation, its REST objects, its HTTP pipeline."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.disks import files_in
from tests.painting import paint_folders
from tests.programs.azure_service import (
    GROUP,
    ID,
    SUBSCRIPTION,
    WORKSPACE,
    AzureService,
    Call,
    Credential,
    cluster,
)
from tests.programs.program import assert_refused, run_process
from tests.programs.submitting import DATA, FOUR_T4, MODEL, ON_A_WORKSTATION, T4, submit
from train_pytorch_model.azure.job_folder import components_version, copy_project, environment_yaml
from train_pytorch_model.azure.submission import Submission

pytestmark = ON_A_WORKSTATION
ENVIRONMENT_FILES = ("Dockerfile", "environment.yaml", "requirements.txt", "constraints.txt")


# ── What is sent ─────────────────────────────────────────────────────────────────────────────────


def test_a_single_job_is_sent_with_every_option(service: AzureService) -> None:
    ended = submit(
        *(*DATA, *MODEL, "--instance-count", "2", "--epochs", "7", "--learning-rate", "0.00001"),
        *("--experiment-name", "flowers", "--register", "flower-model", "--time-limit", "90"),
    )
    assert (ended.status, ended.stderr) == (0, "")
    sent = service.job["properties"]
    assert sent["jobType"] == "Command"
    assert sent["experimentName"] == "flowers"
    assert sent["computeId"] == f"{ID}/computes/gpu-cluster"
    assert sent["codeId"] == f"{ID}/codes/known/versions/1"
    assert sent["resources"]["instanceCount"] == 2
    assert sent["resources"]["shmSize"] == "8g"
    assert sent["distribution"] == {"distributionType": "PyTorch", "processCountPerInstance": 1}
    assert sent["limits"]["timeout"] == "PT1H30M"
    inputs = {name: port.get("uri") or port["value"] for name, port in sent["inputs"].items()}
    assert inputs == {
        "untrained_model": "azureml://datastores/models/paths/resnet50",
        "training_dataset": f"{ID}/data/flowers/versions/1",
        "validation_dataset": f"{ID}/data/flowers-validation/versions/2",
        "epochs": "7",
        "batch_size": "16",
        "warmup_step_number": "0",
        "learning_rate": "1e-05",
        "random_seed": "1",
        "patience": "3",
        "print_frequency": "10",
    }
    assert sent["inputs"]["training_dataset"]["mode"] == "ReadOnlyMount"
    output = sent["outputs"]["trained_model"]
    assert (output["jobOutputType"], output["assetName"]) == ("mlflow_model", "flower-model")
    assert sent["command"].startswith(
        "python -m train_pytorch_model.run --untrained-model ${{inputs."
    )
    assert "The trained model is registered as flower-model\n" in ended.stdout


def test_what_a_job_runs_with_is_sent(service: AzureService) -> None:
    options = (
        *(
            "--environment-variables",
            "NCCL_DEBUG=INFO",
            "NCCL_SOCKET_IFNAME=eth0",
            "--identity",
            "user",
        ),
        *(
            "--data-mode",
            "download",
            "--tags",
            "team=flowers",
            "--display-name",
            "Flowers, once more",
        ),
    )
    assert submit(*DATA, *MODEL, *options, "--wait-limit", "0").status == 0
    sent = service.job["properties"]
    assert sent["environmentVariables"] == {"NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "eth0"}
    assert sent["identity"] == {"identityType": "UserIdentity"}
    assert sent["inputs"]["training_dataset"]["mode"] == "Download"
    assert sent["tags"] == {"team": "flowers"}
    assert sent["displayName"] == "Flowers, once more"
    ended = submit(*DATA, "--architecture", "resnet18", *options, "--wait-limit", "0")
    assert ended.status == 0, ended.stderr
    for step in service.job["properties"]["jobs"].values():
        assert step["environment_variables"]["NCCL_DEBUG"] == "INFO"
        assert step["identity"] == {"identity_type": "UserIdentity"}


@pytest.mark.parametrize(
    "model", [MODEL, ("--architecture", "resnet18")], ids=["single job", "pipeline"]
)
def test_a_job_runs_on_serverless_nodes_of_low_priority(
    model: tuple[str, ...], service: AzureService
) -> None:
    options = (
        "--compute",
        "serverless",
        "--low-priority",
        "--vm-size",
        FOUR_T4,
        "--wait-limit",
        "0",
    )
    ended = submit(*DATA, *model, *options)
    assert ended.status == 0, ended.stderr
    sent = service.job["properties"]
    if model == MODEL:
        assert "computeId" not in sent
        assert sent["resources"]["instanceType"] == FOUR_T4
        assert sent["queueSettings"]["jobTier"] == "Spot"
    else:
        assert sent["settings"]["default_compute"].endswith("/computes/serverless")
        train = sent["jobs"]["train"]
        assert train["resources"]["instance_type"] == FOUR_T4
        assert train["queue_settings"]["job_tier"].lower() == "spot"
    assert not [call for call in service.changes() if "/computes/" in call]


def test_serverless_nodes_of_a_size_not_offered_are_refused(service: AzureService) -> None:
    service.vm_sizes = {T4: 1}
    ended = submit(*DATA, *MODEL, "--compute", "serverless", "--vm-size", "Standard_Unheard_Of")
    assert_refused(ended, 2, "ParameterError: --vm-size Standard_Unheard_Of is not offered")


def test_without_a_model_a_pipeline_initializes_and_trains_one(service: AzureService) -> None:
    service.steps = {"init_model": "Completed", "train": "Preparing"}
    ended = submit(
        *DATA, "--architecture", "densenet121", "--pretrained", "--process-count-per-instance", "1"
    )
    assert (ended.status, ended.stderr) == (0, "")
    sent = service.job["properties"]
    assert sent["jobType"] == "Pipeline"
    assert sent["settings"]["default_compute"] == f"{ID}/computes/gpu-cluster"
    init_model, train = sent["jobs"]["init_model"], sent["jobs"]["train"]
    assert init_model["inputs"]["architecture"]["value"] == "densenet121"
    assert init_model["inputs"]["pretrained"]["value"] in ("True", "true")
    assert train["resources"]["instance_count"] == 1
    assert train["distribution"] == {
        "distribution_type": "PyTorch",
        "process_count_per_instance": 1,
    }
    model = train["inputs"]["untrained_model"]["value"]
    assert model == "${{parent.jobs.init_model.outputs.untrained_model}}"
    assert train["inputs"]["epochs"]["value"] == "5"
    assert "] train: Preparing: building the environment's image" in ended.stdout


@pytest.mark.parametrize(
    "options",
    [
        pytest.param((*MODEL, "--instance-count", "2", "--register", "flowers"), id="single job"),
        pytest.param(("--architecture", "resnet18", "--time-limit", "5"), id="pipeline"),
        pytest.param((*MODEL, "--environment", "mine@latest"), id="another environment"),
        pytest.param(
            ("--architecture", "resnet18", "--image", "registry/image:1"), id="another image"
        ),
    ],
)
def test_a_dry_run_writes_exactly_the_job_that_is_sent(
    options: tuple[str, ...], service: AzureService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from azure.ai.ml import MLClient, load_job

    folder = tmp_path / "job"
    ended = submit(*DATA, *options, "--dry-run", folder)
    assert (ended.status, ended.stderr) == (0, "")
    assert service.calls == []
    assert f"  az ml job create --file {folder}/job.yaml\n" in ended.stdout

    # What `az ml job create --file` does, from another directory.
    monkeypatch.chdir("/")
    client = MLClient(Credential(), SUBSCRIPTION, GROUP, WORKSPACE, enable_telemetry=False)
    client.jobs.create_or_update(load_job(source=folder / "job.yaml"))
    by_hand = service.job["properties"]
    monkeypatch.chdir(tmp_path)
    assert submit(*DATA, *options, "--wait-limit", "0").status == 0
    assert service.job["properties"] == by_hand


def test_an_installed_package_writes_the_same_job_without_a_workspace_or_warnings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in the wheel: files that are beside `src` in a checkout are inside the package.
    root, site = Path(__file__).parents[2], tmp_path / "site-packages"
    ignored = shutil.ignore_patterns("__pycache__")
    package = shutil.copytree(
        root / "src" / "train_pytorch_model", site / "train_pytorch_model", ignore=ignored
    )
    shutil.copytree(root / "environment", package / "environment")
    shutil.copyfile(root / "component.yaml", package / "component.yaml")
    options = (*DATA, *MODEL, "--max-nodes", "3", "--vm-size", FOUR_T4)
    assert submit(*options, "--dry-run", tmp_path / "checkout").status == 0

    monkeypatch.setenv("PYTHONPATH", str(site))
    command = (sys.executable, "-m", "train_pytorch_model", "submit", *options)
    ended = run_process(*command, "--dry-run", tmp_path / "installed")
    assert (ended.status, ended.stderr) == (0, "")
    new_cluster = (
        f"--name gpu-cluster --size {FOUR_T4} --min-instances 0 --max-instances 3   # if it does"
    )
    assert new_cluster in ended.stdout
    assert files_in(tmp_path / "installed") == files_in(tmp_path / "checkout")


def test_exactly_the_program_the_environment_and_the_data_are_uploaded(
    service: AzureService, tmp_path: Path, untrained_resnet18: Path
) -> None:
    service.is_new_code = True
    images = paint_folders(tmp_path / "images", 2)
    ended = submit(
        *("--training-dataset", images, "--validation-dataset", images),
        *("--untrained-model", untrained_resnet18, "--wait-limit", "0"),
    )
    assert (ended.status, ended.stderr) == (0, "")
    package = Path(__file__).parents[2] / "src" / "train_pytorch_model"
    program = {
        f"src/train_pytorch_model/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    environment = {f"environment/{name}" for name in ENVIRONMENT_FILES}
    data = {f"images/{path.relative_to(images).as_posix()}" for path in images.glob("*/*.png")}
    model = {f"resnet18/{name}" for name in ("_meta.yaml", "model", "model_spec.yaml")}
    assert service.uploaded() == program | environment | data | model


@pytest.mark.parametrize(
    "job", [(*DATA, *MODEL, "--wait-limit", "0"), ()], ids=["with a job", "alone"]
)
def test_components_are_registered_once(
    job: tuple[str, ...], service: AzureService, tmp_path: Path
) -> None:
    copy_project(Submission(), tmp_path)
    version, own = components_version(tmp_path), environment_yaml(Submission(), tmp_path)
    service.components = {f"train_pytorch_model:{version}"}
    ended = submit(*job, "--register-components")
    assert (ended.status, ended.stderr) == (0, "")
    assert f"Component train_pytorch_model {version} is registered already\n" in ended.stdout
    assert f"Registered component score_image_model {version}\n" in ended.stdout
    registered = [call for call in service.changes() if call.startswith("PUT /components/")]
    assert f"PUT /components/photographs_to_model/versions/{version}" in registered
    assert not any("train_pytorch_model" in call for call in registered)
    assert bool(service.job) == bool(job)
    sent = [
        call.body["properties"]["componentSpec"]
        for call in service.calls
        if str(call) in registered
    ]
    named = {spec["environment"] for spec in sent if "environment" in spec}
    assert named == {f"azureml:{ID}/environments/{str(own)[8:].replace(':', '/versions/')}"}


def test_the_environment_is_registered_once_and_then_named(
    service: AzureService, tmp_path: Path
) -> None:
    copy_project(Submission(), tmp_path)
    name = str(environment_yaml(Submission(), tmp_path)).removeprefix("azureml:")
    known = f"{ID}/environments/{name.replace(':', '/versions/')}"
    ended = submit(*DATA, *MODEL, "--wait-limit", "0")
    assert (ended.status, ended.stderr) == (0, "")
    assert f"Registered environment {name.replace(':', ' ')}\n" in ended.stdout
    created = [call for call in service.changes() if "/environments/" in call]
    assert created == [f"PUT {known.removeprefix(ID)}"]
    assert service.job["properties"]["environmentId"] == known
    service.environments, service.calls = {name}, []
    ended = submit(*DATA, *MODEL, "--wait-limit", "0")
    assert "Registered" not in ended.stdout
    assert not [call for call in service.changes() if "/environments/" in call]
    assert service.uploaded() == set()


def test_components_of_another_environment_need_no_image_to_be_built(service: AzureService) -> None:
    name = "azureml://registries/ours/environments/mine/versions/1"
    ended = submit("--register-components", "--environment", name)
    assert (ended.status, ended.stderr) == (0, "")
    changes = [call for call in service.calls if call.method == "PUT" and call.path.startswith(ID)]
    assert not [call for call in changes if "/environments/" in call.path]
    specs = [
        call.body["properties"].get("componentSpec")
        for call in changes
        if "/components/" in call.path
    ]
    assert {spec["environment"] for spec in specs if "environment" in spec} == {name}
    ended = submit("--register-components", "--environment", "mine")
    assert_refused(ended, 2, "ParameterError: --environment mine names no version")


def test_a_component_has_the_version_of_its_content(tmp_path: Path) -> None:
    copy_project(Submission(), tmp_path)
    version = components_version(tmp_path)
    assert version.startswith("0.1.0-")
    assert components_version(tmp_path) == version
    with (tmp_path / "src" / "train_pytorch_model" / "run.py").open("a") as file:
        file.write("# changed")
    assert components_version(tmp_path) != version


def test_what_another_submission_registers_first_is_no_error(service: AzureService) -> None:
    def be_second(call: Call) -> tuple[int, Any] | None:
        is_asset = call.path.startswith((f"{ID}/environments/", f"{ID}/components/"))
        message = "A version of this name already exists and cannot be changed."
        error = {"error": {"code": "UserError", "message": message}}
        return (409, error) if call.method == "PUT" and is_asset else None

    service.fault = be_second
    ended = submit(*DATA, *MODEL, "--register-components", "--wait-limit", "0")
    assert (ended.status, ended.stderr) == (0, "")
    assert service.job["properties"]["environmentId"].startswith(f"{ID}/environments/")


def test_another_conflict_is_an_error(service: AzureService) -> None:
    service.fault = lambda call: (
        (409, {"error": {"code": "Conflict", "message": "The name is reserved."}})
        if call.method == "PUT" and "/environments/" in call.path
        else None
    )
    ended = submit(*DATA, *MODEL)
    assert_refused(ended, 4, "ServiceError: Registering environment ", "The name is reserved.")


# ── The cluster ──────────────────────────────────────────────────────────────────────────────────


def test_a_missing_cluster_is_created_before_the_job(service: AzureService) -> None:
    ended = submit(
        *(
            *DATA,
            *MODEL,
            "--compute",
            "new",
            "--vm-size",
            FOUR_T4,
            "--max-nodes",
            "3",
            "--wait-limit",
            "0",
        ),
        *("--process-count-per-instance", "4", "--instance-count", "2"),
    )
    assert (ended.status, ended.stderr) == (0, "")
    assert f"Creating the cluster new: 0 to 3 nodes of {FOUR_T4}\n" in ended.stdout
    properties = service.computes["new"]["properties"]["properties"]
    assert properties["vmSize"] == FOUR_T4
    assert properties["vmPriority"] == "Dedicated"
    assert properties["scaleSettings"]["minNodeCount"] == 0
    assert properties["scaleSettings"]["maxNodeCount"] == 3
    changes = service.changes()
    assert changes.index("PUT /computes/new") < next(
        index for index, call in enumerate(changes) if call.startswith("PUT /jobs/")
    )


def test_a_refusal_of_low_priority_says_what_there_is_instead(service: AzureService) -> None:
    service.fault = lambda call: (
        (400, {"error": {"code": "BadRequest", "message": "LowPriority is not supported."}})
        if call.method == "PUT" and "/computes/" in call.path
        else None
    )
    new = ("--compute", "new", "--wait-limit", "0")
    ended = submit(*DATA, *MODEL, *new, "--low-priority")
    instead = (
        "`--compute serverless` with --low-priority asks for nodes of the Spot tier instead.\n"
    )
    assert_refused(ended, 4, "ServiceError: Creating the cluster new: ", instead)
    ended = submit(*DATA, *MODEL, *new)
    assert_refused(ended, 4, "ServiceError: Creating the cluster new: ", "is not supported.\n")
    service.fault = lambda _: None
    service.computes["cheap"] = cluster("cheap", T4, 4)
    service.computes["cheap"]["properties"]["properties"]["vmPriority"] = "LowPriority"
    ended = submit(*DATA, *MODEL, "--compute", "cheap", "--wait-limit", "0")
    assert ended.status == 0, ended.stderr
    assert "Warning: cheap has low-priority nodes. Azure has retired " in ended.stdout


def test_an_existing_cluster_of_a_size_not_offered_here_is_used(service: AzureService) -> None:
    service.computes["elsewhere"] = cluster("elsewhere", "Standard_Of_Another_Region", 4)
    service.vm_sizes = {"Standard_CPU": 0}
    for options in ([], ["--max-nodes", "4"]):  # which are those that it has
        ended = submit(*DATA, *MODEL, "--compute", "elsewhere", "--wait-limit", "0", *options)
        assert (ended.status, ended.stderr) == (0, "")
        assert "Warning" not in ended.stdout


def test_an_existing_cluster_is_left_unchanged(service: AzureService) -> None:
    ended = submit(*DATA, *MODEL, "--max-nodes", "9", "--wait-limit", "0")
    assert ended.status == 0
    assert (
        "Warning: gpu-cluster exists and has at most 4 nodes; --max-nodes is ignored.\n"
        in ended.stdout
    )
    assert not any("/computes/" in call for call in service.changes())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ("--instance-count", "5"),
            "Node count should be at most the cluster's maximum: --instance-count is 5, and"
            " gpu-cluster has"
            " at most 4 nodes.",
        ),
        (
            ("--process-count-per-instance", "2"),
            "Process count per node should be at most the GPUs of a node:"
            " --process-count-per-instance is 2,"
            f" and {T4} has 1.",
        ),
        (
            ("--vm-size", FOUR_T4),
            f"gpu-cluster exists, and its nodes are {T4}: --vm-size {FOUR_T4} does not",
        ),
        (
            ("--compute", "kubernetes", "--instance-count", "2"),
            "Several nodes need an AmlCompute cluster: kubernetes is of type kubernetes, and"
            " --instance-count"
            " is 2.",
        ),
        (
            ("--compute", "odd", "--process-count-per-instance", "4"),
            "--process-count-per-instance is 4, and Standard_Odd has 3.",
        ),
        (
            ("--compute", "new", "--vm-size", "Standard_Unheard_Of"),
            "--vm-size Standard_Unheard_Of is not offered in the region of the workspace. Sizes"
            " with GPUs"
            " there:\n  standard_nc4as_t4_v3\n  standard_odd",
        ),
        (
            ("--compute", "new", "--vm-size", "Standard_Odd", "--process-count-per-instance", "4"),
            "--process-count-per-instance is 4, and Standard_Odd has 3.",
        ),
    ],
)
def test_what_the_cluster_cannot_do_is_refused_before_anything_is_created(
    options: tuple[str, ...], sentence: str, service: AzureService
) -> None:
    service.vm_sizes = {T4: 1, "Standard_Odd": 3, "Standard_CPU": 0}
    service.computes["kubernetes"] = cluster("kubernetes", "", 0, "Kubernetes")
    service.computes["odd"] = cluster("odd", "Standard_Odd", 4)
    assert_refused(submit(*DATA, *MODEL, *options), 2, "ParameterError: ", sentence)
    assert service.changes() == []
    assert service.uploaded() == set()
