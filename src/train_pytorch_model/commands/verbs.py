"""The verbs by name. Importing this module loads only the little that all verbs need."""

from collections.abc import Mapping

from train_pytorch_model.commands.convert import Convert
from train_pytorch_model.commands.evaluate import Evaluate
from train_pytorch_model.commands.export import Export
from train_pytorch_model.commands.fit import Fit
from train_pytorch_model.commands.init_model import InitModel
from train_pytorch_model.commands.parsing import Command
from train_pytorch_model.commands.quickstart import Quickstart
from train_pytorch_model.commands.review import Review
from train_pytorch_model.commands.score import Score
from train_pytorch_model.commands.split import Split
from train_pytorch_model.commands.submit import Submit
from train_pytorch_model.commands.train import Train
from train_pytorch_model.commands.transform import InitTransformation, Transform
from train_pytorch_model.commands.watch import Watch

VERBS: Mapping[str, type[Command]] = {
    "train": Train,
    "fit": Fit,
    "init-model": InitModel,
    "score": Score,
    "evaluate": Evaluate,
    "watch": Watch,
    "review": Review,
    "export": Export,
    "submit": Submit,
    "convert": Convert,
    "split": Split,
    "init-transformation": InitTransformation,
    "transform": Transform,
    "quickstart": Quickstart,
}
