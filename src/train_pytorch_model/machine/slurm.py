"""What Slurm's environment variables say about the tasks of a job step."""

import re
from collections.abc import Mapping

PORTS = range(10_000, 30_000)  # below those that Linux gives to clients


def is_task(env: Mapping[str, str]) -> bool:
    """Return whether srun has started this process: as one of many, the script of a batch job is not."""
    return "SLURM_PROCID" in env and ("SLURM_STEP_ID" in env or env.get("ENVIRONMENT") != "BATCH")


def num_tasks(env: Mapping[str, str]) -> str:
    """Return the number of tasks: of the step, which may have fewer than the job."""
    return env.get("SLURM_STEP_NUM_TASKS") or env.get("SLURM_NTASKS") or env.get("SLURM_NPROCS") or "1"


def num_nodes(env: Mapping[str, str]) -> str:
    """Return the number of the step's nodes."""
    return env.get("SLURM_STEP_NUM_NODES") or env.get("SLURM_JOB_NUM_NODES") or env.get("SLURM_NNODES") or "1"


def tasks_here(env: Mapping[str, str]) -> str:
    """Return the number of tasks on this node; empty if the variables do not say."""
    if num_nodes(env) == "1":
        return num_tasks(env)
    # For example `4(x2),1`: four on each of the first two nodes, one on the third.
    per_node = env.get("SLURM_STEP_TASKS_PER_NODE") or env.get("SLURM_TASKS_PER_NODE", "")
    counts: list[str] = [
        count
        for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", per_node)
        for _ in range(int(times or 1))
    ]
    node = env.get("SLURM_NODEID", "")
    if node.isdecimal() and int(node) < len(counts):
        return counts[int(node)]
    return env.get("SLURM_NTASKS_PER_NODE", "")


def first_host(env: Mapping[str, str]) -> str:
    """Return the name of the first node, on which rank 0 runs; empty if the variables do not say."""
    # For example `gpu[01-04,07],login`.
    hosts = env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST") or env.get("SLURM_NODELIST", "")
    first = re.sub(r"(?<=\[)(\w+)[^]]*", r"\1", hosts).partition(",")[0]
    return first.replace("[", "").replace("]", "")


def port(env: Mapping[str, str]) -> int | None:
    """Return a port that differs from that of other jobs and steps on the node; None without a job id."""
    job, step = env.get("SLURM_JOB_ID", ""), env.get("SLURM_STEP_ID", "0")
    if not job.isdecimal():
        return None
    return PORTS[(31 * int(job) + (int(step) if step.isdecimal() else 0)) % len(PORTS)]
