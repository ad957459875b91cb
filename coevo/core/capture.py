"""CUDA graphs behind a plain call: the whole of a step replayed without launch gaps, and nothing at all on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Outputs = tuple[Tensor, ...]


class Captured:
    """Calls `function(*tensors) -> tuple of tensors`, on CUDA by replaying one graph per input shape.

    The function may update tensors in place (parameters, optimiser state). Those are named in `state` (a callable
    that lists them, since an optimiser makes its own at the first step): warm-up runs before a capture are undone on
    them. Outputs are copied, so they stay valid after the next call.
    """

    def __init__(self, function: Callable[..., Outputs], state: Callable[[], Sequence[Tensor]] = lambda: ()) -> None:
        self.function, self.state = function, state
        self.graphs: dict[tuple, tuple[torch.cuda.CUDAGraph, list[Tensor], Outputs]] = {}

    def __call__(self, *inputs: Tensor) -> Outputs:
        if not inputs[0].is_cuda:
            return self.function(*inputs)
        key = tuple((item.shape, item.dtype) for item in inputs)
        if key not in self.graphs:
            self.graphs[key] = self._capture(inputs)
        graph, static, outputs = self.graphs[key]
        for place, item in zip(static, inputs, strict=True):
            place.copy_(item)
        graph.replay()
        return tuple(item.clone() for item in outputs)

    def _capture(self, inputs: Sequence[Tensor]) -> tuple[torch.cuda.CUDAGraph, list[Tensor], Outputs]:
        static = [item.clone() for item in inputs]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            saved = [item.detach().clone() for item in self.state()]
            for _ in range(2):
                self.function(*static)
            self._restore(saved)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = self.function(*static)
        return graph, static, outputs

    def _restore(self, saved: Sequence[Tensor]) -> None:
        """Put the state back; what did not exist before the warm-up (fresh moments, step counts) becomes zero."""
        with torch.no_grad():
            for index, item in enumerate(self.state()):
                item.copy_(saved[index]) if index < len(saved) else item.zero_()
