"""Command lines that do not exist here: what other trainers call it, and which verb has it."""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from train_pytorch_model.words.errors import ParameterError
from train_pytorch_model.words.settings import flag

_DATA = "training_dataset validation_dataset dataset input folder"
# Of a verb that has several, the first is meant: score and evaluate read a trained model, train writes one.
_OUTPUTS = "scored_dataset output output_1 trained_model"
_OURS = {
    "learning_rate": "lr lr0 base_lr init_lr max_lr",
    "batch_size": "b bs batch train_batch_size per_device_train_batch_size",
    "epochs": "epoch n_epochs num_epochs max_epochs num_train_epochs",
    "seed random_seed": "seed manual_seed",
    "warmup_epochs": "warmup warmup_epochs lr_warmup_epochs",
    "image_size": "imgsz img img_size input_size crop_size resolution",
    _DATA: "d data data_dir data_path data_root dataset dataset_dir"
    " i input images source src path folder test test_dir",
    "training_dataset": "train train_dir train_data training_data",
    "validation_dataset": "val val_dir valid validation validation_data",
    _OUTPUTS: "o out output output_dir save_dir project dst evaluation",
    "untrained_model trained_model architecture": "m model a arch backbone checkpoint weights",
    "precision": "amp fp16 bf16 half mixed_precision",
    "optimizer": "opt optim",
    "top_k": "topk k",
}
NAMES: Mapping[str, str] = {name: ours for ours, names in _OURS.items() for name in names.split()}
"""What other trainers call an option → the fields that it may mean here, separated by spaces."""

_INSTEAD = {
    "device devices gpu gpus gpu_ids accelerator cpu cuda no_cuda": "all GPUs are used, else the CPU."
    " CUDA_VISIBLE_DEVICES=0 before the command takes the first GPU only, CUDA_VISIBLE_DEVICES=-1 the CPU.",
    "j workers num_workers dataloader_num_workers": "the number of decoders follows from the cores of the"
    " machine.",
    "resume resume_from_checkpoint auto_resume": "the same command resumes an interrupted run; --fresh starts"
    " over.",
    "momentum weight_decay wd sched lr_scheduler": "the optimizer's settings and its schedule are fixed;"
    " .github/docs/recipe.md describes them.",
}
REMARKS: Mapping[str, str] = {name: text for names, text in _INSTEAD.items() for name in names.split()}
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
        names = NAMES.get(name, name)
        meant = names.split()
        if "folder" in meant and "folder" in options[verb]:
            yield f"{option} is not an option here: name the folder alone."
        elif here := [flag(each) for each in meant if each in options[verb]]:
            here = here[:1] if names == _OUTPUTS else here
            yield f"{option} is {' or '.join(here)} here."
        else:
            for each in meant:
                if verbs := [other for other in options if each in options[other]]:
                    called = option if each == name else f"{option} is {flag(each)} here, which"
                    names = " and ".join(filter(None, (", ".join(verbs[:-1]), verbs[-1])))
                    yield f"{called} is not an option of {verb}, but of {names}."
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
