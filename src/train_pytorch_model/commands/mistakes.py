"""Command lines that do not exist here: what other trainers call it, and which verb has it."""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from train_pytorch_model.words.errors import ParameterError
from train_pytorch_model.words.settings import flag

_DATA = ("training_dataset", "validation_dataset", "dataset", "input", "folder")
# Of a verb that has several, the first is meant: score and evaluate read a trained model, train writes one.
_OUTPUTS = ("scored_dataset", "output", "output_1", "trained_model")
_MODEL = ("untrained_model", "trained_model", "architecture")
NAMES: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("lr", "lr0", "base_lr", "init_lr", "max_lr"), ("learning_rate",)),
    **dict.fromkeys(("b", "bs", "batch", "train_batch_size", "per_device_train_batch_size"), ("batch_size",)),
    **dict.fromkeys(("epoch", "n_epochs", "num_epochs", "max_epochs", "num_train_epochs"), ("epochs",)),
    **dict.fromkeys(("seed", "manual_seed"), ("seed", "random_seed")),
    **dict.fromkeys(("warmup", "warmup_epochs", "lr_warmup_epochs"), ("warmup_epochs",)),
    **dict.fromkeys(("imgsz", "img", "img_size", "input_size", "crop_size", "resolution"), ("image_size",)),
    **dict.fromkeys(("d", "data", "data_dir", "data_path", "data_root", "dataset", "dataset_dir"), _DATA),
    **dict.fromkeys(("train", "train_dir", "train_data", "training_data"), ("training_dataset",)),
    **dict.fromkeys(("val", "val_dir", "valid", "validation", "validation_data"), ("validation_dataset",)),
    **dict.fromkeys(("i", "input", "images", "source", "src", "path", "folder", "test", "test_dir"), _DATA),
    **dict.fromkeys(
        ("o", "out", "output", "output_dir", "save_dir", "project", "dst", "evaluation"), _OUTPUTS
    ),
    **dict.fromkeys(("m", "model", "a", "arch", "backbone", "checkpoint", "weights"), _MODEL),
    **dict.fromkeys(("amp", "fp16", "bf16", "half", "mixed_precision"), ("precision",)),
    **dict.fromkeys(("opt", "optim"), ("optimizer",)),
    **dict.fromkeys(("topk", "k"), ("top_k",)),
}
"""What other trainers call an option → the fields that it may mean here."""

REMARKS: Mapping[str, str] = {
    **dict.fromkeys(
        ("device", "devices", "gpu", "gpus", "gpu_ids", "accelerator", "cpu", "cuda", "no_cuda"),
        "all GPUs are used, else the CPU. CUDA_VISIBLE_DEVICES=0 before the command takes the first GPU only,"
        " CUDA_VISIBLE_DEVICES=-1 the CPU.",
    ),
    **dict.fromkeys(
        ("j", "workers", "num_workers", "dataloader_num_workers"),
        "the number of decoders follows from the cores of the machine.",
    ),
    **dict.fromkeys(
        ("resume", "resume_from_checkpoint", "auto_resume"),
        "the same command resumes an interrupted run; --fresh starts over.",
    ),
    **dict.fromkeys(
        ("momentum", "weight_decay", "wd", "sched", "lr_scheduler"),
        "the optimizer's settings and its schedule are fixed; .github/docs/recipe.md describes them.",
    ),
}
"""Options of other trainers that have no counterpart → what happens instead."""

VERBS: Mapping[str, str] = {
    **dict.fromkeys(("predict", "infer", "inference", "classify"), "score"),
    **dict.fromkeys(("test", "val", "validate", "eval"), "evaluate"),
    **dict.fromkeys(("finetune", "fine-tune", "resume"), "train"),
    "init": "init-model",
}
"""What other trainers call a verb → ours."""


def hints(arguments: Iterable[str], verb: str, options: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a sentence about each option that `verb` lacks; `options` has the fields of every verb."""
    flags = [flag(each) for each in options[verb]]
    for argument in arguments:
        option = argument.partition("=")[0]
        name = option.lstrip("-").replace("-", "_").lower()
        is_ours = f"--{name.replace('_', '-')}" in flags
        if is_ours or not option.startswith("-") or not name.isidentifier():
            continue
        if name in REMARKS:
            yield f"{option} is not an option: {REMARKS[name]}"
            continue
        meant = NAMES.get(name, (name,))
        if "folder" in meant and "folder" in options[verb]:
            yield f"{option} is not an option here: name the folder alone."
        elif here := [flag(each) for each in meant if each in options[verb]]:
            here = here[:1] if meant is _OUTPUTS else here
            yield f"{option} is {' or '.join(here)} here."
        else:
            for each in meant:
                if verbs := [other for other in options if each in options[other]]:
                    called = option if each == name else f"{option} is {flag(each)} here, which"
                    yield f"{called} is not an option of {verb}, but of {' and '.join(verbs)}."
                    break


def missing_verb(first: str, verbs: Sequence[str], prog: str) -> ParameterError:
    """Return the error for a command line that does not start with a verb."""
    if first.startswith("-"):
        problem = f'a verb comes before the options: "{prog} VERB {first} …".'
    else:
        meant = VERBS.get(first.lower(), first)
        closest = difflib.get_close_matches(meant, verbs, n=1)
        problem = f'"{first}" is not a verb.' + "".join(f' Did you mean "{verb}"?' for verb in closest)
    return ParameterError(
        f'{problem} The verbs are {", ".join(verbs)}; "{prog} VERB --help" lists the options of one.'
    )
