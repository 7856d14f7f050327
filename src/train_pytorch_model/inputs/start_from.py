"""A trained model to start from: what is taken of it, and what is new."""

from dataclasses import fields, replace
from pathlib import Path

from train_pytorch_model.config.fit_options import FitOptions
from train_pytorch_model.config.model_options import ModelOptions
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.config.wording import counted, parameter
from train_pytorch_model.errors import InvalidModelDirectoryError, ParameterError
from train_pytorch_model.formats.listing import missing_names
from train_pytorch_model.formats.missing_path import explain_missing
from train_pytorch_model.formats.model_directory import ModelDirectory, open_model_directory
from train_pytorch_model.formats.reading import META

HINT = "Name a model that fit or train has written, such as photographs-model."
MAX_SHOWN = 5  # categories in a line


def check_start_options(options: FitOptions) -> None:
    """Raise `ParameterError` for options that a model to start from decides."""
    if options.start_from is None:
        return
    decided = [option.name for option in fields(ModelOptions) if option.name != "recipe"]
    for name in (*decided, "from_scratch"):
        if getattr(options, name) != getattr(FitOptions, name):
            raise ParameterError(
                f"{parameter('start_from')} and {parameter(name)} are mutually exclusive: the"
                " architecture and the weights are those of the model. Give one."
            )


def open_start(path: Path, recipe: Recipe) -> ModelDirectory:
    """Return the model, with its own recipe but for what `recipe` says otherwise.

    Raises `InvalidModelDirectoryError`.
    """
    port = parameter("start_from")
    if not (path / META).exists():
        reason = f"it is not a model ({META} is missing)." if path.is_dir() else ""
        reason = reason or explain_missing(path, "directory")
        raise InvalidModelDirectoryError(f"{port} {path}", reason, HINT)
    model = open_model_directory(path, port)
    if not model.is_trained:
        raise model.error("it is not trained.", HINT)
    return with_given_entries(model, recipe)


def with_given_entries(model: ModelDirectory, recipe: Recipe) -> ModelDirectory:
    """Return the model with its own recipe but for the entries that `recipe` gives."""
    by_default = Recipe()
    given = {
        entry.name: getattr(recipe, entry.name)
        for entry in fields(Recipe)
        if getattr(recipe, entry.name) != getattr(by_default, entry.name)
    }
    return replace(model, recipe=replace(model.recipe, **given))


def describe_start(model: ModelDirectory, categories: tuple[str, ...]) -> str:
    """Return what training starts from, and which categories are new or no longer there."""
    text = f"Starts from {model.root}, a {model.architecture}"
    new = missing_names(categories, model.categories)
    gone = missing_names(model.categories, categories)
    for names, what in ((new, "new"), (gone, "no longer there")):
        if names:
            number = counted(len(names), "category is", "categories are")
            shown = ", ".join(map(repr, names[:MAX_SHOWN]))
            more = " …" if len(names) > MAX_SHOWN else ""
            text += f"; {number} {what}: {shown}{more}"
    return text
