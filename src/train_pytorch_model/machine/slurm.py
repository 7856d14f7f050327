"""What Slurm's variables say of a job step: its tasks, its nodes, and where its processes meet."""

import re
from collections.abc import Mapping

PORTS = range(10_000, 30_000)  # below those that Linux gives to clients


def first_of(env: Mapping[str, str], *names: str) -> str:
    """Return the first of these variables that is set and not empty; else an empty text."""
    return next(filter(None, map(env.get, names)), "")


def is_task(env: Mapping[str, str]) -> bool:
    """Return whether srun has started this process, as one of many; a batch script is no task."""
    return "SLURM_PROCID" in env and ("SLURM_STEP_ID" in env or env.get("ENVIRONMENT") != "BATCH")


def num_tasks(env: Mapping[str, str]) -> str:
    """Return the number of tasks: of the step, which may have fewer than the job."""
    return first_of(env, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS") or "1"


def num_nodes(env: Mapping[str, str]) -> str:
    """Return the number of nodes: of the step, which may have fewer than the job."""
    return first_of(env, "SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES") or "1"


def num_tasks_here(env: Mapping[str, str]) -> str:
    """Return the number of tasks on this node; empty if the variables do not say."""
    if num_nodes(env) == "1":
        return num_tasks(env)
    # For example `4(x2),1`: four on each of the first two nodes, one on the third.
    per_node = first_of(env, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
    runs: list[tuple[str, str]] = re.findall(r"(\d+)(?:\(x(\d+)\))?", per_node)
    counts: list[str] = []
    for count, times in runs:
        counts += [count] * int(times or 1)
    node = env.get("SLURM_NODEID", "")
    if node.isdecimal() and int(node) < len(counts):
        return counts[int(node)]
    return env.get("SLURM_NTASKS_PER_NODE", "")


def first_host(env: Mapping[str, str]) -> str:
    """Return the name of the first node, on which rank 0 runs; empty if it is not known."""
    # For example `gpu[01-04,07],login`.
    hosts = first_of(env, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
    first = re.sub(r"(?<=\[)(\w+)[^]]*", r"\1", hosts).partition(",")[0]
    return first.replace("[", "").replace("]", "")


def port(env: Mapping[str, str], default: int) -> int:
    """Return a port that differs from that of other jobs and steps on the node.

    Without a job id it is the default.
    """
    job = env.get("SLURM_JOB_ID", "")
    if not job.isdecimal():
        return default
    step = env.get("SLURM_STEP_ID", "0")
    step_number = int(step) if step.isdecimal() else 0
    return PORTS[(31 * int(job) + step_number) % len(PORTS)]
