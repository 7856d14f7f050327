"""README's tables and commands agree with the program."""

import importlib.util
import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest
import tyro
import yaml
from tests.azure_job import pytorch_job
from tests.readme import PAGES, PROGRAM, README, blocks, commands_of, verbs_of

from train_pytorch_model.commands.submit import Submit
from train_pytorch_model.commands.verbs import VERBS
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.config.wording import display_name, flag
from train_pytorch_model.formats.listing import SUFFIXES
from train_pytorch_model.image_classifier.architectures import FAMILY_OF
from train_pytorch_model.machine.launch import LaunchError, Worker, decide

ROOT = Path(__file__).parents[2]

RUN = {
    "Your own images": "programs/test_flowers.py",
    "After the first model": "programs/test_flowers.py",
    "Step by step": "programs/test_flowers.py",
    "The whole chain": "programs/test_chain.py",
    "Converting and splitting": "programs/test_flowers.py",
    "Transforming images": "programs/test_flowers.py",
    "Evaluating": "programs/test_flowers.py",
    "Serving and exporting": "programs/test_flowers.py",
}
"""Heading → the test that runs the program's commands below it, word for word."""

NOT_RUN = {
    "python3 -m venv": ".ci/run runs the second, programs/test_quickstart.py the end of the first",
    ".venv/bin/pip install": "from an index out of reach; programs/test_wheel.py makes a wheel",
    ".venv/bin/python -m train_pytorch_model quickstart": "programs/test_quickstart.py runs it",
    "python -m train_pytorch_model fit photographs --minutes": "unit/stories/test_race.py runs it",
    "python -m train_pytorch_model init-model --architecture timm:tf": "its weights are elsewhere",
    "mlflow models serve": "programs/test_serving.py runs it, on another port",
    "az ": "needs Azure ML; contract/ checks the files",
    "mkdir ": "a folder for what the next line writes",
    "python -c": "programs/test_endpoint.py runs it, and sends what it writes",
    "python -m train_pytorch_model submit": "needs Azure ML; programs/test_submit.py records it",
}
"""Start of a command → why no test runs it verbatim."""


def rows(header: str) -> list[list[str]]:
    """The cells of the table under a header line."""
    _, _, rest = README.partition(header + "\n")
    lines = rest.splitlines()[1:]
    table = lines[: next(i for i, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def test_the_parameter_table_matches_train_config() -> None:
    config = TrainConfig()
    table = rows("| parameter | flag | range | default | meaning |")
    assert [(name, flag_, default) for name, flag_, _, default, _ in table] == [
        (display_name(f.name), f"`{flag(f.name)}`", str(getattr(config, f.name)))
        for f in fields(TrainConfig)
    ]


def test_the_ranges_in_the_table_match_the_component() -> None:
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


def test_the_verb_table_lists_every_verb() -> None:
    assert {cell.strip("`") for cell, _ in rows("| verb | does |")} == set(VERBS)


def test_every_architecture_and_suffix_is_listed() -> None:
    text = " ".join(README.split())
    assert f"Architectures: {', '.join(FAMILY_OF)}." in text
    listed = re.search(r"files named ([.\w ]+) are taken, in capitals too", text)
    assert listed is not None
    assert set(listed[1].split()) == SUFFIXES


@pytest.mark.parametrize(
    "words", [words for heading in blocks("sh") for words in verbs_of(heading)], ids=shlex.join
)
def test_a_command_of_the_readme_parses(words: list[str]) -> None:
    verb, *arguments = words
    tyro.cli(VERBS[verb], args=arguments)


def test_the_modules_and_tests_that_the_pages_name_exist() -> None:
    named = set(re.findall(r"`([\w/]+/\w+\.py)`", README))
    folders = ROOT, ROOT / "tests", ROOT / "src" / "train_pytorch_model"
    assert len(named) > 10
    assert {name for name in named if not any((each / name).exists() for each in folders)} == set()


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


def test_assets_named_in_yaml_files_are_created_by_a_command() -> None:
    """`az ml … create --name` creates data and models; `submit` creates the cluster."""
    made = set(re.findall(r"az ml (?:data|model) create --name ([\w-]+) --version 1", README))
    components = ROOT / "src" / "train_pytorch_model" / "components"
    texts = [README, *(path.read_text() for path in components.rglob("*.yaml"))]
    named = {
        name
        for text in texts
        for name in re.findall(
            r"(?:path:|model:|--input|-model|-dataset|archive\.path=) ?azureml:([\w-]+):1", text
        )
    }
    assert named == made
    clusters = {
        name for text in texts[1:] for name in re.findall(r"comput\w*: azureml:([\w-]+)", text)
    }
    assert clusters == {Submit.compute, "cpu-cluster"}  # for batch endpoints
    assert "az ml compute create --type AmlCompute --name cpu-cluster " in README


@pytest.mark.parametrize("verb", VERBS)
def test_the_readme_contains_the_example_of_every_help(verb: str) -> None:
    assert f"train_pytorch_model {verb} {VERBS[verb].EXAMPLE}".strip() in README


@pytest.mark.parametrize("heading", blocks("sh"))
def test_every_command_is_run_by_a_test_or_excused(heading: str) -> None:
    for words in commands_of(heading):
        command = shlex.join(words)
        if not command.startswith(tuple(NOT_RUN)):
            assert words[: len(PROGRAM)] == PROGRAM, f"{command}: who runs that?"
            test = (ROOT / "tests" / RUN[heading]).read_text()
            assert f'verbs_of("{heading}")' in test, f"{RUN[heading]} does not run {command}"


def test_the_jobs_of_slurm_and_kubernetes_train_with_one_process_per_node() -> None:
    (script,), (manifest, newer) = (
        blocks(language)["Several processes"] for language in ("bash", "yaml")
    )
    assert "#SBATCH --nodes=2 --ntasks-per-node=1 " in script
    (step,) = re.findall(r"^srun (python .*)$", script, re.MULTILINE)
    job = yaml.safe_load(manifest)
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    pods = [each["template"]["spec"] for each in job["spec"]["pytorchReplicaSpecs"].values()]
    containers = [container for pod in pods for container in pod["containers"]]
    assert {container["name"] for container in containers} == {"pytorch"}  # as the operator expects
    train_job = yaml.safe_load(newer)
    assert (train_job["apiVersion"], train_job["kind"]) == (
        "trainer.kubeflow.org/v1alpha1",
        "TrainJob",
    )
    commands = [container["command"] for container in (*containers, train_job["spec"]["trainer"])]
    for words in (shlex.split(step), *commands):
        assert words[: len(PROGRAM) + 1] == [*PROGRAM, "train"]
        tyro.cli(VERBS["train"], args=words[len(PROGRAM) + 1 :])


def test_every_excused_command_exists() -> None:
    commands = [shlex.join(words) for heading in blocks("sh") for words in commands_of(heading)]
    for beginning in NOT_RUN:
        assert any(command.startswith(beginning) for command in commands), beginning
    assert set(RUN) <= set(blocks("sh"))
    served = [command for command in commands if command.startswith("mlflow")]
    assert len(set(served)) == 1  # the one that test_serving.py runs
    assert (
        'commands_of("Serving and exporting")'
        in (ROOT / "tests/programs/test_serving.py").read_text()
    )


@pytest.mark.parametrize("module", sorted(set(re.findall(r"python -m ([\w.]+)", README))))
def test_every_named_module_exists(module: str) -> None:
    assert importlib.util.find_spec(module) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_linked_file_and_heading_exists(page: Path) -> None:
    for path, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(#[^)]*)?\)", PAGES[page]):
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), path
        if anchor:
            headings = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", line).replace(" ", "-").lower() for line in headings}
            assert anchor.removeprefix("#") in anchors, anchor


def test_the_readme_is_short_and_links_every_page() -> None:
    readme, *pages = PAGES
    assert len(PAGES[readme].splitlines()) <= 250
    for page in pages:
        assert f"(.github/docs/{page.name})" in PAGES[readme]
        assert "\n\nAfter this page you " in PAGES[page]


def test_the_install_commands_end_in_the_quickstart_and_pytest() -> None:
    readme, *_ = PAGES.values()
    first, second = re.findall(r"^python3 -m venv .*$", readme, re.MULTILINE)
    assert first.endswith("-m train_pytorch_model quickstart")
    assert second.endswith("-m pytest")
