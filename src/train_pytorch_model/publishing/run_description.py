"""How a run is described in MLflow."""

import shlex
from pathlib import Path

from train_pytorch_model import __version__
from train_pytorch_model.distributed.world import World
from train_pytorch_model.tracking.description import RunDescription
from train_pytorch_model.training.engine import Engine
from train_pytorch_model.training.plan import Plan
from train_pytorch_model.training.plan_text import params_of


def folder_name(path: Path) -> str:
    """Return the last component of a path: the rest is private."""
    return path.resolve().name


def describe_run(engine: Engine, output: Path) -> RunDescription:
    """Return what MLflow shows of the run: like the report, folders without their paths."""
    plan = engine.plan
    inputs = plan.inputs
    tags = {
        "output": folder_name(output),
        "version": __version__,
        "architecture": inputs.model.architecture,
        "command": " ".join(command_of(plan, output)),
    }
    if inputs.model.weights_licence:
        tags["weights_licence"] = inputs.model.weights_licence
    if inputs.race:
        tags |= {
            "race": f"{inputs.race.chosen} of {len(inputs.race.candidates)} candidates",
            "race_accuracy": f"{inputs.race.accuracy:.4f}",
        }
    return RunDescription(
        name=folder_name(output),
        params=params_of(plan, engine.lr_factors),
        tags=tags,
        data_sets={"training": inputs.training, "validation": inputs.validation},
    )


def command_of(plan: Plan, output: Path) -> list[str]:
    """Return the command line, one option per line, with folders but not their paths."""
    inputs = plan.inputs
    options = {
        "--untrained-model": folder_name(inputs.model.root),
        "--training-dataset": inputs.training.name,
        "--validation-dataset": inputs.validation.name,
        "--trained-model": folder_name(output),
        **plan.config.as_flags(),
    }
    lines = [f"{flag} {shlex.quote(str(value))}" for flag, value in options.items()]
    return [_program(plan.world), *lines]


def _program(world: World) -> str:
    if world.size == 1:
        return "python -m train_pytorch_model train"
    nodes = world.size // world.local_size
    machines = "--standalone" if nodes == 1 else f"--nnodes={nodes}"
    return f"torchrun {machines} --nproc-per-node={world.local_size} -m train_pytorch_model train"
