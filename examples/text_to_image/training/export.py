"""Writes the network as ONNX. Weights have 16 bits in the file, and 32 when it runs."""
# pyright: basic, reportMissingImports=false

from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

SMALLEST = 256
"""Arrays with fewer numbers keep 32 bits."""


def export(network: nn.Module, path: Path) -> None:
    """Write a network to a file. It takes any number of pictures of any size that 4 divides."""
    network = network.to(memory_format=torch.contiguous_format)
    example = torch.zeros(2, 3, 32, 48), torch.zeros(2, dtype=torch.int64), torch.ones(2, 14, dtype=torch.int64)
    torch.onnx.export(
        network,
        example,
        str(path),
        dynamo=False,
        opset_version=17,
        input_names=["pixels", "times", "words"],
        output_names=["answer"],
        dynamic_axes={
            "pixels": {0: "n", 2: "height", 3: "width"},
            "times": {0: "n"},
            "words": {0: "n"},
            "answer": {0: "n", 2: "height", 3: "width"},
        },
    )
    model = onnx.load(path)
    halve(model.graph)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")


def halve(graph: onnx.GraphProto) -> None:
    """Store large arrays in 16 bits, with a node that widens each. The runtime does that once, when it loads."""
    casts = []
    for place, array in enumerate(graph.initializer):
        values = numpy_helper.to_array(array)
        if values.dtype == np.float32 and values.size >= SMALLEST:
            name = f"{array.name}_16"
            casts.append(helper.make_node("Cast", [name], [array.name], to=TensorProto.FLOAT))
            graph.initializer[place].CopyFrom(numpy_helper.from_array(values.astype(np.float16), name))
    nodes = [*casts, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
