"""What is off for lists of categories says so here, with a reason that its caller words."""

from train_pytorch_model.errors import UserError
from train_pytorch_model.formats.label_kinds import LabelKind
from train_pytorch_model.image_classifier.answers import Answers


def refuse_lists(kind: LabelKind | Answers, error: UserError) -> None:
    """Raise the error if images have, or a model answers, any number of categories."""
    if kind.is_multi_label:
        raise error
