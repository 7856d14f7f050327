"""`fit`: train and test a classifier on a folder of images, with one call."""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, get_type_hints

from train_pytorch_model.api.model import AnyPath, Model
from train_pytorch_model.config.fit_options import FitOptions
from train_pytorch_model.config.given_values import path_of, typed_values
from train_pytorch_model.config.keyword_options import require_known, set_signature
from train_pytorch_model.config.options import assemble, options_in
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.machine.console import logger, shown_on_console
from train_pytorch_model.machine.launch import rank_of
from train_pytorch_model.machine.stop_requests import StopRequests
from train_pytorch_model.stories.fit import Fitted
from train_pytorch_model.stories.fit import fit as run_fit


def fit(folder: AnyPath, output: AnyPath | None = None, **options: Any) -> Model:
    """Train and test a classifier on a folder of images.

    It is written to `output`, by default FOLDER-model. The options are those of the command line,
    as `help(fit)` lists them. An interrupted call is resumed by the same call. Raises a
    `UserError`, such as `InvalidDatasetError`, and `ParameterError` for an option that does not
    exist.
    """
    require_known("fit", options, _OPTIONS)
    values = options if output is None else options | {"output": output}
    images = path_of("folder", folder)
    chosen = assemble(FitOptions, typed_values(values, _TYPES))
    is_main = rank_of(os.environ) == 0
    with shown_on_console(is_main, chosen.quiet), warnings.catch_warnings(), _kept_randomness():
        # Of tqdm, in notebooks without ipywidgets.
        warnings.filterwarnings("ignore", "IProgress not found")
        fitted = run_fit(images, chosen, stops=_stopped_by_caller)
    model = Model(fitted.model)
    if is_main:
        with shown_on_console(quiet=chosen.quiet):
            _log_next_steps(model, fitted)
    return model


def _log_next_steps(model: Model, fitted: Fitted) -> None:
    """Say what Python can do with the model that `fit` returns."""
    logger.info(f"The model is in {model.root}. Next, after `model = fit(…)`:")
    for code, meaning in _next_steps(model, fitted):
        logger.info(f"  {code:24}# {meaning}")
    logger.info(f"Later: `model = load({str(model.root)!r})`")


def _next_steps(model: Model, fitted: Fitted) -> Iterator[tuple[str, str]]:
    """Yield expressions of Python, and what they are."""
    if model.evaluation is not None:
        yield "model.evaluation", "how good it is on images that training has not seen"
    if len(model.suspects):
        yield "model.suspects", "images whose category is probably wrong"
    if fitted.review:
        yield 'model.review("FOLDER")', fitted.review
    yield "model.report", "how it was trained, and what to try next"
    yield 'model.predict("FOLDER")', "new images"


_OPTIONS = {option.name: option for option in options_in(FitOptions) if option.name != "output"}
_TYPES = {
    name: hint
    for kind in (FitOptions, Recipe, TrainConfig)
    for name, hint in get_type_hints(kind).items()
}


set_signature(fit, _OPTIONS.values(), _TYPES)


def _kept_randomness() -> AbstractContextManager[None]:
    """Return what leaves the caller's random generators as they are, if PyTorch has any yet."""
    if "torch" not in sys.modules:
        return nullcontext()
    from train_pytorch_model.inference.random_state import kept_random_state

    return kept_random_state()


def _stopped_by_caller() -> AbstractContextManager[StopRequests]:
    """Return what asks a run to stop: nothing, because signals are the caller's."""
    return nullcontext(StopRequests())
