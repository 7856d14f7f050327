"""`fit` and `quickstart`: from one folder of images to a trained and tested model, or from none."""

import hashlib
import os
import shlex
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from train_pytorch_model import __version__
from train_pytorch_model.commands import next_steps, run_output, train
from train_pytorch_model.commands.evaluate import show
from train_pytorch_model.commands.init_model import InitModel, check
from train_pytorch_model.commands.processes import options_of, run_in_processes
from train_pytorch_model.commands.score import Score
from train_pytorch_model.config.model_options import ModelOptions
from train_pytorch_model.config.options import OptionalPath, Switch
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.config.wording import parameter
from train_pytorch_model.datasets.conversion import convert, is_archive, keep_unpacked, open_source
from train_pytorch_model.datasets.one_folder import open_parts
from train_pytorch_model.errors import FailedToDownloadFilesError
from train_pytorch_model.evaluation.directory import PAGE
from train_pytorch_model.formats.model_directory import open_model_directory
from train_pytorch_model.formats.outputs import check_apart, check_output, owning_directory
from train_pytorch_model.formats.reading import META
from train_pytorch_model.formats.run_folder import UNTRAINED, RunFolder
from train_pytorch_model.formats.trained_directory import EVALUATION, REPORT
from train_pytorch_model.inputs import opening
from train_pytorch_model.inputs.opening import OpenedInputs
from train_pytorch_model.machine.console import logger, set_up
from train_pytorch_model.machine.launch import rank_of
from train_pytorch_model.machine.stop_requests import StopRequests, stop_requests

if TYPE_CHECKING:
    from train_pytorch_model.distributed.world import World

OUTPUT = "output"
BATCH_SIZE = (
    32  # half the time of 16: at 32 px the weights, not the images, make up the cost of a step
)


@dataclass(frozen=True, kw_only=True)
class Fit(ModelOptions):
    """Train and test a classifier on one folder of images: split, init-model, train and evaluate in
    one."""

    EXAMPLE = "photographs"

    folder: tyro.conf.Positional[Path]
    """One folder per category, or images with a labels.csv; may be split into train, val and test.
    An archive or a table is unpacked or copied to FOLDER-images."""
    output: OptionalPath = None
    """Directory for the trained model; must be new or empty. By default FOLDER-model."""
    from_scratch: Switch = False
    """Use no pretrained weights. By default they are used if they are here or can be downloaded."""
    parameters: tyro.conf.OmitArgPrefixes[TrainConfig] = field(default_factory=TrainConfig)
    fresh: Switch = False
    """Start over instead of resuming an interrupted run with this output."""
    quiet: Switch = False
    """Print warnings and errors only."""

    @property
    def model(self) -> Path:
        """Where the trained model goes."""
        return self.output or self._beside("model")

    def _beside(self, suffix: str) -> Path:
        folder = self.folder if self.folder.name.strip(".") else self.folder.resolve()
        name = folder.name.partition(".")[0] if os.path.isfile(folder) else folder.name
        return folder.parent / f"{name}-{suffix}"

    def run(
        self, stops: Callable[[], AbstractContextManager[StopRequests]] = stop_requests
    ) -> None:
        """Train the model, unless that is done, and evaluate it on images held out from training."""
        rank = rank_of(os.environ)
        set_up(rank == 0, self.quiet)
        logger.info(f"Train PyTorch Model {__version__}")
        check(self)
        check_apart(self.model, OUTPUT, self.folder, "folder")
        parameters = [*options_of(self.parameters)]
        arguments = ["fit", str(self.folder), "--output", str(self.model), *parameters]
        arguments += [f"--{name}" for name in ("fresh", "quiet") if getattr(self, name)]
        same = {"folder": str(self.folder), "parameters": " ".join(parameters)}

        def story(inputs: OpenedInputs, world: "World") -> None:
            from train_pytorch_model.stories.evaluate import evaluate
            from train_pytorch_model.stories.train import train as train_model

            if not (self.model / META).exists():
                train_model(self.parameters, inputs, self.model, world, self.fresh, stops)
            if not world.is_main or inputs.test is None:
                return
            tested = opening.evaluation_inputs(opening.open_trained(self.model), inputs.test)
            alone = replace(world, size=1, local_size=1)  # the other processes are no longer needed
            evaluation = evaluate(tested, self.model / EVALUATION, alone)
            assert evaluation is not None  # on the main process
            logger.info(f"On {evaluation.images:,} test images, which training has not seen:")
            show(evaluation, inputs.categories, indent="  ")
            logger.info(
                f"The model is in {self.model}, with {REPORT} and {EVALUATION}/{PAGE}. Next:"
            )
            for command in next_steps.scoring_commands(self.model):
                logger.info(f"  {command}")

        with run_output.recorded_failures(self.model, rank):
            run_in_processes(story, self._open, arguments, same)

    def _open(self) -> OpenedInputs | None:
        """Open the images and make the untrained model; None if this same command has done
        everything.
        """
        parts = open_parts(self._images(), self.parameters.random_seed)
        training, validation = opening.with_same_categories(parts.training, parts.validation)
        counts = ", ".join(f"{len(images):,} for {name}" for name, images in vars(parts).items())
        logger.info(f"{self.folder}: {len(training.categories):,} categories; images: {counts}")
        run = RunFolder.beside(self.model)
        if not (self.model / META).exists():
            check_output(self.model, OUTPUT, by_writing=rank_of(os.environ) == 0, token=run.token)
        options = {each.name: str(getattr(self, each.name)) for each in fields(ModelOptions)}
        options |= {
            "from_scratch": str(self.from_scratch),
            "seed": str(self.parameters.random_seed),
        }
        made_by = hashlib.sha256(repr(sorted(options.items())).encode()).hexdigest()
        untrained = open_model_directory(self._untrained(run, made_by), opening.UNTRAINED_MODEL)
        inputs = opening.training_inputs(untrained, training, validation, self.parameters.epochs)
        inputs = replace(inputs, test=parts.test, made_by=made_by)
        if run_output.is_unfinished(self.model, inputs, self.parameters, self.fresh, name=OUTPUT):
            return inputs
        run.remove()  # the untrained model was only made to compare it
        return None if (self.model / EVALUATION / META).exists() else inputs

    def _images(self) -> Path:
        """Return the folder of the images; those of an archive are unpacked, unless an earlier call
        has.
        """
        if not os.path.isfile(self.folder):
            return self.folder
        images, is_packed = self._beside("images"), is_archive(self.folder)
        if (images / META).exists() or (is_packed and images.exists()):
            logger.info(f"The images in {images} are used, which is there already.")
        elif is_packed:  # as it is: it may hold parts, and files keep their names
            keep_unpacked(self.folder, images)
            logger.info(f"{self.folder} is now unpacked in {images}")
        else:
            with open_source(self.folder, images) as source:
                logger.info(
                    f"{self.folder}: {convert(source, images):,} images are now in {images}"
                )
        return images

    def _untrained(self, run: RunFolder, made_by: str) -> Path:
        """Return the untrained model of these options, made at the first start of the run."""
        path, seed = run.root / f"{UNTRAINED}{made_by[:16]}", self.parameters.random_seed
        if (path / META).exists():
            return path
        from train_pytorch_model.stories.init_model import initialize

        is_chosen = self.from_scratch or self.pretrained or self.weights or self.weights_file
        try:
            initialize(
                replace(self, pretrained=self.pretrained or not is_chosen),
                seed,
                path,
                not self.quiet,
            )
        except FailedToDownloadFilesError:
            if is_chosen:
                raise
            logger.warning(
                "Pretrained weights are not here and cannot be downloaded; training from scratch,"
                " which takes"
                f" many more images and epochs. {parameter('weights_file')} names weights from"
                " elsewhere."
            )
            initialize(self, seed, path, shows_download=False)
        return path


@dataclass(frozen=True, kw_only=True)
class Quickstart:
    """Train and score on scikit-learn's handwritten digits, in about a minute on a CPU."""

    EXAMPLE = ""

    output: Path = Path("quickstart")
    """Directory for images, models and scores; must be new or empty."""

    def run(self) -> None:
        """Write the images, then run the three verbs by their command lines."""
        set_up()
        check_output(self.output, OUTPUT)
        with owning_directory(self.output, OUTPUT):
            logger.info("1. Writing handwritten digits as image directories")
            from train_pytorch_model.datasets.digits import write_digits

            training, validation, held_out = map(str, write_digits(self.output))
            untrained, trained = (
                str(self.output / "untrained_model"),
                str(self.output / "trained_model"),
            )
            logger.info("\n2. Initializing a ResNet-18")
            _type(InitModel, "init-model", "--architecture", "resnet18", "--output", untrained)
            logger.info("\n3. Training")
            _type(train.Train, "train", "--untrained-model", untrained, "--training-dataset", training,
                  "--validation-dataset", validation, "--trained-model", trained,
                  "--batch-size", str(BATCH_SIZE))  # fmt: skip
            logger.info("\n4. Scoring held-out images")
            _type(Score, "score", "--trained-model", trained, "--dataset", held_out,
                  "--scored-dataset", str(self.output / "scores"))  # fmt: skip
            logger.info(
                "\n5. Next: your own images, in one folder per category, such as"
                " photographs/daisy/1.jpg:"
            )
            for command in (
                *next_steps.activation_commands(),
                f"{next_steps.PROGRAM} fit photographs",
            ):
                logger.info(f"  {command}")


def _type(
    command: type[InitModel] | type[train.Train] | type[Score], verb: str, *arguments: str
) -> None:
    logger.info(f"$ {next_steps.PROGRAM} {shlex.join([verb, *arguments])}")
    tyro.cli(command, args=arguments).run()
