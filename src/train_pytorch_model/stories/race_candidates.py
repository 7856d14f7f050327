"""The candidates of a race, as model directories: those that are named are made first."""

import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from train_pytorch_model.config.fit_options import FitOptions
from train_pytorch_model.errors import FailedToDownloadFilesError, UserError
from train_pytorch_model.formats.model_directory import ModelDirectory, open_model_directory
from train_pytorch_model.formats.reading import META
from train_pytorch_model.image_classifier import architectures
from train_pytorch_model.inputs.race_options import RACED_AT, candidates_of, describes_a_model
from train_pytorch_model.inputs.start_from import with_given_entries
from train_pytorch_model.machine.console import logger
from train_pytorch_model.networks.download import fetch_pretrained
from train_pytorch_model.stories.init_model import initialize

DOWNLOADING = 1 / 6  # of the time, for all weights that are not here
PORT = "Candidate"


@dataclass(frozen=True)
class Racer:
    """A candidate whose weights are here."""

    name: str
    model: ModelDirectory
    licence: str  # empty if it is not known


@dataclass
class Opened:
    """The candidates whose weights are here, and why the others are left out."""

    racers: list[Racer] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


def open_candidates(options: FitOptions, work: Path) -> Opened:
    """Open all candidates; those of a name are made in the folder `work`, unless they are there.

    Weights are downloaded as long as that takes a small part of the time.
    """
    assert options.minutes is not None
    opened = Opened()
    downloads = _Downloads(DOWNLOADING * 60 * options.minutes)
    for name, its_options in _described(options):
        try:
            if its_options is None:
                model = open_model_directory(Path(name), PORT)
                model = with_given_entries(model, options.recipe)
                opened.racers.append(Racer(name, model, model.weights_licence))
                continue
            path = work / re.sub(r"\W", "-", name)
            if not (path / META).exists():
                downloads.fetch(its_options)
                initialize(its_options, options.parameters.random_seed, path, shows_download=False)
            model = open_model_directory(path, PORT)
            opened.racers.append(Racer(name, model, model.weights_licence))
        except UserError as error:
            opened.left_out[name] = _in_short(error)
    for name, reason in opened.left_out.items():
        logger.info(f"{name} is left out: {reason}")
    return opened


def _described(options: FitOptions) -> Iterator[tuple[str, FitOptions | None]]:
    """Yield each candidate's name, and the options that make it; None for a directory."""
    if describes_a_model(options):
        names_its_weights = options.pretrained or options.weights or options.weights_file
        yield options.architecture, replace(options, pretrained=not names_its_weights)
    for name in candidates_of(options):
        if Path(name).is_dir():
            yield name, None
        elif not (describes_a_model(options) and name == options.architecture):
            yield name, _of_name(options, name)


def _of_name(options: FitOptions, name: str) -> FitOptions:
    """Return the options of a candidate with pretrained weights, at the size at which it races."""
    recipe = options.recipe
    if recipe.image_size is None and name in RACED_AT:
        recipe = replace(recipe, image_size=RACED_AT[name])
    return replace(
        options,
        recipe=recipe,
        architecture=name,
        pretrained=True,
        weights=None,
        weights_file=None,
        zero_init_residual=False,
        memory_efficient=False,
    )


def _in_short(error: UserError) -> str:
    """Return the first sentence of an error, in one line."""
    text = " ".join(str(error).split())
    return text if len(text) <= 160 else f"{text[:159]}…"


class _Downloads:
    """Downloads of weights, which together may take so long; a host that fails is left alone."""

    def __init__(self, most_s: float) -> None:
        self._ends_at = time.monotonic() + most_s
        self._closed_hosts: dict[bool, UserError] = {}  # whether it is timm's → why

    def fetch(self, options: FitOptions) -> None:
        """Have pretrained weights in their cache. Raises `FailedToDownloadFilesError`."""
        if not options.pretrained:
            return
        is_of_timm = architectures.is_of_timm(options.architecture)
        if is_of_timm in self._closed_hosts:
            raise self._closed_hosts[is_of_timm]
        errors: list[UserError] = []

        def download() -> None:
            try:
                fetch_pretrained(options.architecture)
            except UserError as error:
                errors.append(error)

        # It cannot be ended, but left: it ends with the process at the latest.
        thread = threading.Thread(target=download, daemon=True, name="download")
        thread.start()
        thread.join(max(1.0, self._ends_at - time.monotonic()))
        if thread.is_alive():
            errors.append(_too_slow(options.architecture))
        for error in errors:
            if isinstance(error, FailedToDownloadFilesError):
                self._closed_hosts[is_of_timm] = error
            raise error


def _too_slow(architecture: str) -> FailedToDownloadFilesError:
    return FailedToDownloadFilesError(
        f"the weights of {architecture}",
        "(there is no more time to download them) The next start may find them.",
    )
