"""A frozen model's convolutions on a GPU: cuDNN's, with images either way in memory, and our kernels for stacks.

    python benchmarks/bench_convolutions.py

tf32, median of many calls, each on other images than the one before; teraflops in brackets.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from accord.executors.gpu.precision import numerics
from accord.executors.kernels.products import convolve

# Images, their size, channels, filters, their size, padding, stride.
SHAPES = {
    "fedufo_cnn, first": (500, 32, 3, 64, 5, 2, 1),
    "fedufo_cnn, second": (500, 15, 64, 64, 5, 2, 1),
    "mcmahan_cnn, second": (512, 14, 32, 64, 5, 2, 1),
    "convnet, second": (512, 12, 32, 64, 5, 0, 1),
    "vgg11, second": (512, 16, 64, 128, 3, 1, 1),
    "vgg11, fourth": (512, 8, 256, 256, 3, 1, 1),
    "fedbr_cnn, second": (512, 28, 64, 128, 3, 1, 2),
    "fedbr_cnn, third": (512, 14, 128, 128, 3, 1, 1),
}
TIMES, SETS = 30, 4


def timed(work: Callable[[Tensor], Tensor], images: list[Tensor]) -> float:
    """Milliseconds."""
    for x in images:
        work(x)
    laps = []
    for turn in range(TIMES):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work(images[turn % SETS])
        end.record()
        end.synchronize()
        laps.append(begin.elapsed_time(end))
    return statistics.median(laps)


def main() -> None:
    if not torch.cuda.is_available():
        raise SystemExit("bench_convolutions.py times a GPU, and there is none here")
    print("| layer | cuDNN, ms (TFLOP/s) | channels last | ours |\n|---|---|---|---|")
    with numerics("tf32"), torch.no_grad():
        for name, (number, size, channels, filters, kernel, padding, stride) in SHAPES.items():
            weight = torch.randn(filters, channels, kernel, kernel, device="cuda")
            planes = [torch.randn(number, channels, size, size, device="cuda") for _ in range(SETS)]
            last = [x.contiguous(memory_format=torch.channels_last) for x in planes]
            seen = (size + 2 * padding - kernel) // stride + 1
            work = 2e-9 * number * seen**2 * filters * weight[0].numel()  # GFLOP: over milliseconds, TFLOP/s

            def cudnn(x: Tensor, weight: Tensor = weight, given: tuple[int, int] = (stride, padding)) -> Tensor:
                return functional.conv2d(x, weight, None, *given)

            def own(x: Tensor, weight: Tensor = weight, padding: int = padding, stride: int = stride) -> Tensor:
                images = x.permute(0, 2, 3, 1)[None]
                return convolve(images, weight[None], None, (padding, padding), stride)[0].permute(0, 3, 1, 2)

            cells = [timed(cudnn, planes), timed(cudnn, last), timed(own, last)]
            apart = (own(last[0]) - cudnn(planes[0])).norm() / cudnn(planes[0]).norm()
            assert apart < 3e-3, apart
            print(f"| {name} | " + " | ".join(f"{ms:.3f} ({work / ms:.0f})" for ms in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
