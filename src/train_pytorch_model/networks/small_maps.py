"""Convolutions of feature maps of a few pixels, as a CPU computes them fast.

On a map of 1 x 1, only the middle of a 3 x 3 filter meets a pixel, and all others nothing but
padding. oneDNN computes them all; what it leaves of their bfloat16 gradients with a stride of 2 is
uninitialized: 1e30, or NaN. Here only the weights that meet pixels are computed; the gradients of
the others are zeros, or none where their steps wait (`UnmetWeights`). On maps of up to 2 x 2 a
matrix product is faster as well.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from train_pytorch_model.networks.meetings import Meeting, meeting_of
from train_pytorch_model.networks.unmet_weights import UnmetWeights

# Milliseconds of a forward and a backward pass of 16 images, channels-last in oneDNN and as a
# matrix product, on one core of an AMD EPYC: `python -m tests.benchmarks.small_maps`.
#
#    filters, output map           AVX2, float32    AVX512-BF16, bfloat16
#    128 → 128, 3 x 3, 8 x 8         8.9   11.2           4.5    6.2
#    256 → 256, 3 x 3, 4 x 4         9.9   11.0           5.1    6.3
#    512 → 512, 3 x 3, 2 x 2          32     14            11    7.6
#    128 → 128, 3 x 3, 2 x 2         1.3    1.0           0.8    0.8
#    64 → 64, 3 x 3, 2 x 2          0.51   0.47          0.36   0.50
#    512 → 512, 3 x 3, 1 x 1          31    0.9           7.6    0.9
#    64 → 64, 3 x 3, 1 x 1          0.38   0.13          0.30   0.25
#    2048 → 512, 1 x 1, 2 x 2        7.7    5.6            10    3.2
#    96 → 576, 1 x 1, 2 x 2         0.53   0.37          0.44   0.36
MAX_POSITIONS = 4  # of a filter: pixels of the output
MIN_WEIGHTS = 1 << 17  # that meet pixels, unless it is one of each filter and channel


class SmallMapConv2d(nn.Conv2d):
    """A convolution that leaves out weights which meet no pixel; a product where that is faster.

    On larger maps it is PyTorch's.
    """

    padding: tuple[int, int]
    kernel_size: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    unmet: UnmetWeights | None = None
    """What the optimizer does to weights that meet no pixel, if it does so later."""

    def forward(self, input: Tensor) -> Tensor:
        meeting = meeting_of(
            *input.shape[-2:], self.kernel_size, self.stride, self.padding, self.dilation
        )
        if self.unmet:
            self.unmet.prepare_for(meeting)
        is_product = self._is_product_faster(meeting)
        if meeting.is_of_all and not is_product:
            return super().forward(input)
        weight: Tensor = self.weight if meeting.is_of_all else self._computed_weights(meeting)
        if is_product:
            images = _in_precision(input)
            matrix: Tensor = MatrixProduct.apply(images, weight, self.bias, meeting)
            positions = (meeting.rows.num_positions, meeting.columns.num_positions)
            # Here: an activation in place refuses a function's own view.
            return matrix.view(len(images), *positions, len(weight)).permute(0, 3, 1, 2)
        padded = F.pad(input, meeting.padding)
        return F.conv2d(padded, weight, self.bias, self.stride, 0, self.dilation, self.groups)

    def _computed_weights(self, meeting: Meeting) -> Tensor:
        is_trained = self.weight.requires_grad and torch.is_grad_enabled()
        if self.unmet and is_trained and meeting.is_of_computed:
            met = self.unmet.met_by(meeting)
            if met is not None:
                return met
        computed: Tensor = ComputedWeights.apply(self.weight, meeting)
        return computed

    def _is_product_faster(self, meeting: Meeting) -> bool:
        if self.groups > 1 or not 0 < meeting.num_positions <= MAX_POSITIONS:
            return False
        num_weights = self.out_channels * self.in_channels * meeting.num_weights
        return meeting.num_weights == 1 or num_weights >= MIN_WEIGHTS


def unmet_weights_of(network: nn.Module) -> dict[str, UnmetWeights]:
    """Return the convolutions' weights whose steps may wait, by the names of these."""
    return {
        f"{name}.weight": layer.unmet
        for name, layer in network.named_modules()
        if isinstance(layer, SmallMapConv2d) and layer.unmet
    }


def is_plain(module: nn.Module) -> bool:
    """Return whether a module is a convolution that pads with zeros, and no subclass.

    timm has some that pad by themselves.
    """
    if type(module) is not nn.Conv2d:
        return False
    return module.padding_mode == "zeros" and isinstance(module.padding, tuple)


def _in_precision(images: Tensor) -> Tensor:
    if torch.is_autocast_enabled("cpu"):
        return images.to(torch.get_autocast_dtype("cpu"))
    return images


class ComputedWeights(torch.autograd.Function):
    """The weights of filters that meet pixels; the gradients of all others are zeros."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, meeting: Meeting) -> Tensor:
        ctx.meeting = meeting
        ctx.save_for_backward(weight)
        return meeting.computed(weight).contiguous(memory_format=torch.channels_last)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        meeting: Meeting = ctx.meeting
        (weight,) = ctx.saved_tensors
        of_all = torch.zeros_like(weight)
        is_met = meeting.computed(meeting.is_met(weight.device)[None, None])
        meeting.computed(of_all).copy_(torch.where(is_met, gradient, 0.0))
        return of_all, None


class MatrixProduct(torch.autograd.Function):
    """A convolution as a matrix product, whose rows are what each position of the filters meets.

    `weight` has only those that meet pixels.
    """

    @staticmethod
    def forward(
        ctx: Any, images: Tensor, weight: Tensor, bias: Tensor | None, meeting: Meeting
    ) -> Tensor:
        """Return the output (B * H' * W', O) of images (B, C, H, W)."""
        met = gather(images.permute(0, 2, 3, 1), meeting)
        matrix = weight.permute(0, 2, 3, 1).to(images.dtype).reshape(len(weight), -1)
        ctx.meeting = meeting
        ctx.images_shape = images.shape
        ctx.save_for_backward(met, matrix, weight)
        if bias is None:
            return torch.mm(met, matrix.t())
        return torch.addmm(bias.to(images.dtype), met, matrix.t())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of images, weight and bias."""
        met, matrix, weight = ctx.saved_tensors
        of_images, of_weight, of_bias = None, None, None
        of_output = gradient.reshape(len(met), len(weight))
        if ctx.needs_input_grad[0]:
            of_met = torch.mm(of_output, matrix)
            of_images = scatter(of_met, ctx.images_shape, ctx.meeting).permute(0, 3, 1, 2)
        if ctx.needs_input_grad[1]:
            of_matrix = torch.mm(of_output.t(), met).to(weight.dtype)
            of_weight = of_matrix.view(weight.permute(0, 2, 3, 1).shape).permute(0, 3, 1, 2)
        if ctx.needs_input_grad[2]:
            of_bias = of_output.sum(dim=0, dtype=weight.dtype)
        return of_images, of_weight, of_bias, None


def gather(pixels: Tensor, meeting: Meeting) -> Tensor:
    """Return what the filters meet, (B * positions, weights * C), of pixels (B, H, W, C)."""
    rows, columns = meeting.rows, meeting.columns
    padded = F.pad(pixels, (0, 0, *meeting.padding)).contiguous()
    by_image, by_row, by_column, by_channel = padded.stride()
    met = padded.as_strided(
        (
            len(pixels),
            rows.num_positions,
            columns.num_positions,
            rows.num_weights,
            columns.num_weights,
            pixels.shape[-1],
        ),
        (
            by_image,
            by_row * rows.stride,
            by_column * columns.stride,
            by_row * rows.dilation,
            by_column * columns.dilation,
            by_channel,
        ),
    )
    return met.reshape(len(pixels) * meeting.num_positions, meeting.num_weights * pixels.shape[-1])


def scatter(met: Tensor, shape: torch.Size, meeting: Meeting) -> Tensor:
    """Return for each pixel the sum of what was met there, (B, H, W, C): `gather`, transposed.

    `shape` is that of the images, (B, C, H, W).
    """
    num_images, num_channels, image_height, image_width = shape
    rows, columns = meeting.rows, meeting.columns
    met = met.view(
        num_images,
        rows.num_positions,
        columns.num_positions,
        rows.num_weights,
        columns.num_weights,
        num_channels,
    )
    left, right, above, below = meeting.padding
    height, width = above + image_height + below, left + image_width + right
    sums = met.new_zeros(num_images, height, width, num_channels)
    for row in range(rows.num_weights):
        for column in range(columns.num_weights):
            sums[:, rows.met_by(row), columns.met_by(column)] += met[:, :, :, row, column]
    return F.pad(sums, (0, 0, -left, -right, -above, -below))
