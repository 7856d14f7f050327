"""The tables of SCALING.md come from the cost model, and the model follows the page's formulas."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.benchmarks import cost_model
from tests.benchmarks.cost_model import A100, CLUSTERS, TABLES, V100, Job, all_reduce_s, step_of
from tests.readme import README

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / ".github" / "SCALING.md").read_text()
JOB = Job()


@pytest.mark.parametrize("title", TABLES)
def test_a_table_of_the_page_matches_the_cost_model(title: str) -> None:
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    assert [line for line in section.splitlines() if line.startswith("|")] == list(
        TABLES[title](JOB)
    )


def test_the_commands_on_the_page_exist() -> None:
    for module in ("cost_model", "hundred_million_rows", "decode"):
        assert f"python -m tests.benchmarks.{module}" in PAGE
        assert (ROOT / "tests" / "benchmarks" / f"{module}.py").is_file()
    assert "(../SCALING.md)" in README


@pytest.mark.parametrize(
    ("num_gpus", "seconds"),
    [
        (1, 0.0),
        (2, 1e9 / 130e9 + 39 * 2 * 5e-6),  # everything once each way; 39 buckets of 25 MiB
        (8, 14 / 8 * 1e9 / 130e9 + 39 * 14 * 5e-6),
        (16, 30 / 16 * 1e9 / 10e9 + 39 * 30 * 5e-6),  # 80 % of 100 Gb/s
    ],
)
def test_the_all_reduce_is_a_ring_over_its_slowest_link(num_gpus: int, seconds: float) -> None:
    assert all_reduce_s(1_000_000_000, V100, num_gpus) == pytest.approx(seconds)


def test_a_step_waits_for_the_gradients_or_for_the_images() -> None:
    slow_network = replace(A100, network_bytes_per_second=1e8)
    step = step_of(JOB, slow_network, 64)
    assert step.seconds == pytest.approx(
        step.compute_s + step.all_reduce_s - step.compute_s * 2 / 3
    )
    few_cores = replace(A100, cores=1)
    assert step_of(JOB, few_cores, 8).seconds == pytest.approx(8 * 64 / 419)
    assert step_of(JOB, few_cores, 8, is_cached=True).seconds == pytest.approx(8 * 64 / 4783)


@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda cluster: cluster.name)
def test_the_limits_are_where_the_backward_pass_no_longer_hides_the_all_reduce(
    cluster: cost_model.Cluster,
) -> None:
    limit = cost_model.first_exposed(JOB, cluster)
    backward_s = step_of(JOB, cluster, limit).compute_s * 2 / 3
    assert step_of(JOB, cluster, limit - 1).all_reduce_s <= backward_s
    assert step_of(JOB, cluster, limit).all_reduce_s > backward_s
    batch_size = cost_model.smallest_batch(JOB, cluster, 64)
    at_limit = step_of(replace(JOB, batch_size=batch_size), cluster, 64)
    assert at_limit.all_reduce_s <= at_limit.compute_s * 2 / 3
