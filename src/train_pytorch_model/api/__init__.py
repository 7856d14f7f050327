"""`fit` and `load`, for Python and notebooks: the verbs without a command line.

Nothing here exits the process or takes its signals. Errors are those of `words.errors`, all of them a
`UserError`; PyTorch is imported by the first call that computes.
"""

from train_pytorch_model.api.fitting import fit as fit
from train_pytorch_model.api.model import Model as Model
from train_pytorch_model.api.model import load as load
