"""What other trainers call an option, and what that is here: for hints to those who know them."""

from collections.abc import Mapping

# The verbs name their images by one of these.
DATA = ("training_dataset", "validation_dataset", "dataset", "input", "folder")

# Of a verb that has several, the first is meant: score and evaluate read a trained model, train
# writes one.
OUTPUTS = ("scored_dataset", "output", "output_1", "trained_model")

SEEDS = ("seed", "random_seed")
MODELS = ("untrained_model", "trained_model", "architecture")

MEANINGS: Mapping[str, tuple[str, ...]] = {
    "lr": ("learning_rate",),
    "lr0": ("learning_rate",),
    "base_lr": ("learning_rate",),
    "init_lr": ("learning_rate",),
    "max_lr": ("learning_rate",),
    "b": ("batch_size",),
    "bs": ("batch_size",),
    "batch": ("batch_size",),
    "train_batch_size": ("batch_size",),
    "per_device_train_batch_size": ("batch_size",),
    "epoch": ("epochs",),
    "n_epochs": ("epochs",),
    "num_epochs": ("epochs",),
    "max_epochs": ("epochs",),
    "num_train_epochs": ("epochs",),
    "seed": SEEDS,
    "manual_seed": SEEDS,
    "warmup": ("warmup_epochs",),
    "warmup_epochs": ("warmup_epochs",),
    "lr_warmup_epochs": ("warmup_epochs",),
    "imgsz": ("image_size",),
    "img": ("image_size",),
    "img_size": ("image_size",),
    "input_size": ("image_size",),
    "crop_size": ("image_size",),
    "resolution": ("image_size",),
    "d": DATA,
    "data": DATA,
    "data_dir": DATA,
    "data_path": DATA,
    "data_root": DATA,
    "dataset": DATA,
    "dataset_dir": DATA,
    "i": DATA,
    "input": DATA,
    "images": DATA,
    "source": DATA,
    "src": DATA,
    "path": DATA,
    "folder": DATA,
    "test": DATA,
    "test_dir": DATA,
    "train": ("training_dataset",),
    "train_dir": ("training_dataset",),
    "train_data": ("training_dataset",),
    "training_data": ("training_dataset",),
    "val": ("validation_dataset",),
    "val_dir": ("validation_dataset",),
    "valid": ("validation_dataset",),
    "validation": ("validation_dataset",),
    "validation_data": ("validation_dataset",),
    "o": OUTPUTS,
    "out": OUTPUTS,
    "output": OUTPUTS,
    "output_dir": OUTPUTS,
    "save_dir": OUTPUTS,
    "project": OUTPUTS,
    "dst": OUTPUTS,
    "evaluation": OUTPUTS,
    "m": MODELS,
    "model": MODELS,
    "a": MODELS,
    "arch": MODELS,
    "backbone": MODELS,
    "checkpoint": MODELS,
    "weights": MODELS,
    "amp": ("precision",),
    "fp16": ("precision",),
    "bf16": ("precision",),
    "half": ("precision",),
    "mixed_precision": ("precision",),
    "opt": ("optimizer",),
    "optim": ("optimizer",),
    "topk": ("top_k",),
    "k": ("top_k",),
}
"""What other trainers call an option → the fields that it may mean here."""

DEVICES = (
    "all GPUs are used, else the CPU. CUDA_VISIBLE_DEVICES=0 before the command takes the"
    " first GPU only, CUDA_VISIBLE_DEVICES=-1 the CPU."
)
WORKERS = "the number of decoders follows from the cores of the machine."
RESUMING = "the same command resumes an interrupted run; the option fresh starts over."
OPTIMIZER = (
    "the optimizer's settings and its schedule are fixed; .github/docs/recipe.md describes them."
)

REMARKS: Mapping[str, str] = {
    "device": DEVICES,
    "devices": DEVICES,
    "gpu": DEVICES,
    "gpus": DEVICES,
    "gpu_ids": DEVICES,
    "accelerator": DEVICES,
    "cpu": DEVICES,
    "cuda": DEVICES,
    "no_cuda": DEVICES,
    "j": WORKERS,
    "workers": WORKERS,
    "num_workers": WORKERS,
    "dataloader_num_workers": WORKERS,
    "resume": RESUMING,
    "resume_from_checkpoint": RESUMING,
    "auto_resume": RESUMING,
    "momentum": OPTIMIZER,
    "weight_decay": OPTIMIZER,
    "wd": OPTIMIZER,
    "sched": OPTIMIZER,
    "lr_scheduler": OPTIMIZER,
}
"""Options of other trainers that have no counterpart → what happens instead."""


def meanings_of(name: str) -> tuple[str, ...]:
    """Return the fields that an option may mean: by default the one of its name."""
    return MEANINGS.get(name, (name,))
