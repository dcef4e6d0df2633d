"""Model metadata in the Open Inference Protocol."""

from collections.abc import Iterable, Mapping
from typing import Any

from ..tensors import SignatureSpec, TensorSpec


def model_metadata(model: str, versions: Iterable[int], signature: SignatureSpec) -> dict[str, Any]:
    """Describes a model: the inputs and outputs of one signature."""
    return {
        "name": model,
        "versions": [str(version) for version in versions],
        "platform": "tensorflow_savedmodel",
        "inputs": _specs(signature.inputs),
        "outputs": _specs(signature.outputs),
    }


def model_config(model: str, signature: SignatureSpec) -> dict[str, Any]:
    """Describes a model as Triton's configuration does. Some clients read the datatypes there."""

    def tensors(specs: Mapping[str, TensorSpec]) -> list[dict[str, Any]]:
        return [
            {
                "name": spec["name"],
                "data_type": f"TYPE_{spec['datatype']}".replace("BYTES", "STRING"),
                "dims": spec["shape"],
            }
            for spec in _specs(specs)
        ]

    return {
        "name": model,
        "platform": "tensorflow_savedmodel",
        "backend": "tensorflow",
        # Zero means that the shapes include the batch dimension.
        "max_batch_size": 0,
        "input": tensors(signature.inputs),
        "output": tensors(signature.outputs),
    }


def _specs(specs: Mapping[str, TensorSpec]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "datatype": spec.dtype.datatype,
            "shape": [-1 if size is None else size for size in spec.shape or ()],
        }
        for name, spec in sorted(specs.items())
        if spec.dtype.datatype
    ]
