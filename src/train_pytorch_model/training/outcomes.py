"""The outcome of each image of a pass, kept on the device."""

import numpy as np
import torch
from torch import Tensor

from train_pytorch_model.evaluation.metrics import Outcomes
from train_pytorch_model.evaluation.multi_label import MultiLabelOutcomes, multi_label_outcomes
from train_pytorch_model.evaluation.thresholds import DEFAULT
from train_pytorch_model.image_classifier.classifier import exact_device
from train_pytorch_model.training.metrics import ranks_of


class OutcomeRows:
    """The outcome of each image of a pass, 40 bytes each on the device: adding never waits for it.

    A batch is (5, B), float64. Its rows are the fields of `Outcomes`, in their order: the true
    category, the predicted one, the probabilities of the predicted and of the true one, and the
    rank of the true one. All of these integers are exact in float64.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = exact_device(device)
        self._batches = [torch.empty(5, 0, dtype=torch.float64, device=self._device)]

    @torch.no_grad()
    def add(self, logits: Tensor, targets: Tensor) -> None:
        """Add a batch of logits (B, C) and targets (B,)."""
        logits = logits.to(self._device)
        targets = targets.to(self._device)
        predicted = logits.argmax(dim=1)  # the first on ties
        both = torch.stack([predicted, targets], dim=1)  # (B, 2)
        probabilities = logits.double().softmax(dim=1).gather(1, both)  # (B, 2)
        confidences, target_probabilities = probabilities.unbind(dim=1)
        ranks = ranks_of(logits, targets)
        rows = (targets, predicted, confidences, target_probabilities, ranks)
        self._batches.append(torch.stack([row.double() for row in rows]))

    def outcomes(self) -> Outcomes:
        """Return the outcomes of all batches, in their order. Waits for the device."""
        rows = torch.cat(self._batches, dim=1).cpu().numpy()
        targets, predicted, confidences, target_probabilities, ranks = rows
        return Outcomes(
            targets=targets.astype(np.int64),
            predicted=predicted.astype(np.int64),
            confidences=confidences,
            target_probabilities=target_probabilities,
            target_ranks=ranks.astype(np.int64),
        )


class MultiLabelRows:
    """The outcome of each image of a pass, of any number of C categories, on the device.

    A batch is targets and probabilities (B, C), 9 bytes of each category: adding never waits.
    """

    def __init__(self, num_categories: int, device: torch.device) -> None:
        self._device = exact_device(device)
        shape = (0, num_categories)
        self._targets = [torch.empty(shape, dtype=torch.bool, device=self._device)]
        self._probabilities = [torch.empty(shape, dtype=torch.float64, device=self._device)]

    @torch.no_grad()
    def add(self, logits: Tensor, targets: Tensor) -> None:
        """Add a batch of logits and targets, (B, C)."""
        self._targets.append(targets.to(self._device) > 0.5)
        self._probabilities.append(logits.to(self._device).double().sigmoid())

    def outcomes(self) -> MultiLabelOutcomes:
        """Return the outcomes of all batches, in their order. Waits for the device."""
        targets = torch.cat(self._targets).numpy(force=True)
        probabilities = torch.cat(self._probabilities).numpy(force=True)
        return multi_label_outcomes(targets, probabilities, [DEFAULT] * targets.shape[1])
