"""The bench that starts trainings, and the results of undisturbed ones."""

import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.faults.trials import Bench, Result, result_of
from tests.painting import paint_folders
from tests.trainings import TINY


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """15 training images in batches of 4: an epoch is four steps of one process, or two steps of
    two.
    """
    from train_pytorch_model.commands.init_model import InitModel
    from train_pytorch_model.config.recipe import Recipe

    root = tmp_path_factory.mktemp("bench")
    paint_folders(root / "training", 5)
    paint_folders(root / "validation", 3, first=100)
    untrained = root / "untrained"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        # A small network with batch norms, whose statistics differ between processes. The second
        # epoch has larger images than the first.
        recipe = Recipe(precision="float32", image_size=96, early_size=64)
        InitModel(output=untrained, architecture=TINY, recipe=recipe).run()
    bench = Bench(tmp_path_factory.mktemp("said"), root, untrained, root / "mlflow.db")
    # Created in advance: it takes seconds, and MLflow cannot repair a store whose creation was
    # killed.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mlflow

        client = mlflow.MlflowClient(f"sqlite:///{bench.store}")
        client.create_experiment("train_pytorch_model", (root / "mlruns").as_uri())
    return bench


@pytest.fixture(scope="session")
def undisturbed(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Result]:
    """The result of an undisturbed training with a given number of processes."""

    @cache
    def train(ranks: int) -> Result:
        output = tmp_path_factory.mktemp("undisturbed") / "trained"
        ended = bench.train(output, ranks=ranks)
        assert set(ended.statuses) == {0}, ended
        assert [path.name for path in output.parent.iterdir()] == ["trained"]
        return result_of(output)

    return train


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "trained"
