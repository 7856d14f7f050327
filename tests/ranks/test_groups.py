"""Groups of two and three processes give the results of one."""

from itertools import chain

import pytest

from tests.ranks.checks import (
    BATCH_SIZE,
    LEARNING_RATE,
    NUM_DECODED,
    NUM_TRAINING,
    NUM_VALIDATION,
    grey_of,
)
from tests.ranks.conftest import Records
from train_pytorch_model.machine.cores import usable_cores

SEVERAL = pytest.mark.parametrize("size", [2, 3])


@SEVERAL
@pytest.mark.parametrize("batch_size", ["2", "4", "16"])
def test_validation_metrics_do_not_depend_on_the_number_of_processes(
    records: Records, size: int, batch_size: str
) -> None:
    alone = records[1][0]["validated"][batch_size]
    assert alone["images"] == NUM_VALIDATION
    assert 0 < alone["top1"] + 1e-9 < alone["top5"] < 1
    for record in records[size]:
        assert record["validated"][batch_size] == pytest.approx(alone, abs=1e-6)


@SEVERAL
def test_nor_do_those_of_lists_of_categories(records: Records, size: int) -> None:
    alone = records[1][0]["validated_lists"]
    assert 0 < alone["Mean average precision"] < 1
    for record in records[size]:
        assert record["validated_lists"] == pytest.approx(alone, abs=1e-6)


def test_validation_metrics_do_not_depend_on_the_batch_size(records: Records) -> None:
    validated = records[1][0]["validated"]
    # Another batch size sums in another order: float32 results differ in the fifth digit.
    assert validated["2"] == pytest.approx(validated["16"], abs=1e-4)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_image_is_trained_on_exactly_once_per_epoch(records: Records, size: int) -> None:
    seen = chain.from_iterable(
        greys for record in records[size] for greys in record["trained"]["steps"]
    )
    assert sorted(seen) == [grey_of(index) for index in range(NUM_TRAINING)]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_all_processes_report_the_images_of_the_whole_epoch(records: Records, size: int) -> None:
    assert [record["trained"]["images"] for record in records[size]] == [NUM_TRAINING] * size


@pytest.mark.parametrize(("size", "shares"), [(2, [3, 0]), (3, [3, 2, 0])])
def test_processes_without_an_image_take_part_in_the_last_step(
    records: Records, size: int, shares: list[int]
) -> None:
    assert [len(record["trained"]["steps"][-1]) for record in records[size]] == shares
    assert all(record["trained"]["is_finite"] for record in records[size])


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_peak_learning_rate_grows_with_the_number_of_processes(
    records: Records, size: int
) -> None:
    rates = [record["trained"]["first_rate"] for record in records[size]]
    assert rates == [pytest.approx(LEARNING_RATE * size)] * size


@SEVERAL
def test_all_processes_hold_the_same_weights_after_an_epoch(records: Records, size: int) -> None:
    assert len({record["trained"]["parameters"] for record in records[size]}) == 1


@SEVERAL
def test_fine_tuning_starts_identically_on_all_processes(records: Records, size: int) -> None:
    first, *others = (record["fine_tuning"] for record in records[size])
    assert first["statistics"] != first["given"]
    assert others == [first] * (size - 1)


@SEVERAL
def test_averaged_batch_norm_statistics_are_the_mean_of_all_processes(
    records: Records, size: int
) -> None:
    trained = [record["trained"] for record in records[size]]
    assert len({own["own_statistics"] for own in trained}) == size
    assert len({own["averaged_statistics"] for own in trained}) == 1
    assert max(own["distance_from_mean"] for own in trained) < 1e-6


@SEVERAL
def test_all_processes_validate_the_same_network_and_keep_it(records: Records, size: int) -> None:
    validated = [record["decoding"]["once"] for record in records[size]]
    assert len({own["statistics"] for own in validated}) == 1
    assert len({own["parameters"] for own in validated}) == 1


@SEVERAL
@pytest.mark.parametrize("num_images", ["11", "1"])
def test_gradients_equal_those_of_one_process_on_all_images(
    records: Records, size: int, num_images: str
) -> None:
    for record in records[size]:
        for step in record["gradients"][num_images]:
            assert step["largest"] > 0.01
            assert step["difference"] < 1e-5 * max(1, step["largest"])


@pytest.mark.parametrize(
    ("size", "num_images", "shares"),
    [(2, "11", [2, 1]), (2, "1", [1, 0]), (3, "11", [2, 2, 1]), (3, "1", [1, 0, 0])],
)
def test_gradients_are_compared_on_uneven_and_empty_shares(
    records: Records, size: int, num_images: str, shares: list[int]
) -> None:
    last = [record["gradients"][num_images][-1] for record in records[size]]
    assert [step["own_images"] for step in last] == shares
    assert [step["union_images"] for step in last] == [sum(shares)] * size


@SEVERAL
def test_a_loss_that_is_not_finite_ends_all_processes_at_the_same_step(
    records: Records, size: int
) -> None:
    ends = [record["not_finite"] for record in records[size]]
    assert ends[0]["message"] == "The training loss is no longer a finite number"
    assert ends[0]["step"] > 0
    assert ends == [ends[0]] * size


@SEVERAL
def test_processes_see_how_many_share_their_machine_whatever_the_launcher_says(
    records: Records, size: int
) -> None:
    threads = max(1, usable_cores() // size)
    expected = [[local_rank, size, threads] for local_rank in range(size)]
    assert [record["place"] for record in records[size]] == expected


@pytest.mark.parametrize("size", [1, 2, 3])
def test_cached_images_equal_those_decoded_each_time(records: Records, size: int) -> None:
    for record in records[size]:
        once, each_time = record["decoding"]["once"], record["decoding"]["each time"]
        assert len(once["seen"]) >= 2 * NUM_DECODED // (size * BATCH_SIZE)
        assert once["seen"] == each_time["seen"]
        assert once["parameters"] == each_time["parameters"]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_processes_of_a_machine_decode_each_image_once(records: Records, size: int) -> None:
    def decoded(name: str) -> int:
        return sum(record["decoding"][name]["decoded"] for record in records[size])

    assert decoded("each time") == 2 * (NUM_DECODED + NUM_VALIDATION)
    assert decoded("once") == NUM_DECODED + NUM_VALIDATION


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_processes_of_a_machine_share_the_features_of_a_frozen_backbone(
    records: Records, size: int
) -> None:
    def computed(name: str) -> list[str]:
        return [image for record in records[size] for image in record["features"][name]["computed"]]

    assert len(computed("each time")) == 2 * (NUM_TRAINING + NUM_VALIDATION)
    assert sorted(computed("once")) == sorted(set(computed("each time")))
    heads = [
        record["features"][name]["head"]
        for record in records[size]
        for name in ("once", "each time")
    ]
    assert all(head == pytest.approx(heads[0], rel=1e-4, abs=1e-6) for head in heads)


@SEVERAL
def test_no_thread_of_the_group_outlives_it(records: Records, size: int) -> None:
    """Such a thread occasionally aborts a finished process (SIGABRT)."""
    for record in records[size]:
        assert [name for name in record["threads"] if "gloo" in name or "tcpstore" in name] == []
        assert [name for name in record["threads_before"] if "gloo" in name]


def test_only_rank_0_writes_files(records: Records) -> None:
    assert [record["written"] for record in records[2]] == [["mlflow.db", "mlruns", "trained"], []]
