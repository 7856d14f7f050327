"""How a run is described in MLflow."""

import shlex
from pathlib import Path

from train_pytorch_model import __version__
from train_pytorch_model.tracking.description import RunDescription
from train_pytorch_model.training.engine import Engine
from train_pytorch_model.training.plan import Plan
from train_pytorch_model.training.plan_text import params_of


def folder_name(path: Path) -> str:
    """The last component of a path: the rest is private."""
    return path.resolve().name


def describe_run(engine: Engine, output: Path) -> RunDescription:
    """What MLflow shows of the run: like the report, folders without their paths."""
    plan, inputs = engine.plan, engine.plan.inputs
    tags = {
        "output": folder_name(output),
        "version": __version__,
        "architecture": inputs.model.architecture,
        "command": " ".join(command_of(plan, output)),
    }
    data_sets = {"training": inputs.training, "validation": inputs.validation}
    params = params_of(plan, engine.lr_factors)
    return RunDescription(folder_name(output), params, tags, data_sets)


def command_of(plan: Plan, output: Path) -> list[str]:
    """The command line, one option per line, with folders but not their paths."""
    inputs, world = plan.inputs, plan.world
    program = "python -m train_pytorch_model train"
    if world.size > 1:
        nodes = world.size // world.local_size
        spread = "--standalone" if nodes == 1 else f"--nnodes={nodes}"
        program = (
            f"torchrun {spread} --nproc-per-node={world.local_size} -m train_pytorch_model train"
        )
    options = {
        "--untrained-model": folder_name(inputs.model.root),
        "--training-dataset": inputs.training.name,
        "--validation-dataset": inputs.validation.name,
        "--trained-model": folder_name(output),
        **plan.config.as_flags(),
    }
    return [program, *(f"{flag} {shlex.quote(str(value))}" for flag, value in options.items())]
