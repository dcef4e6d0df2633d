"""`:classify` and `:regress`: labels and values for examples with named features.

A model's outputs are checked as TensorFlow Serving checks them.
"""

import numpy as np

from ..dependencies import DataPlane, Lease
from ..engines.base import Servable
from ..errors import ServingError, failed_precondition, invalid
from ..protos.examples import read_json_examples
from ..protos.modules import load_protos
from ..protos.tensors import fill_signature
from ..request import Answer, ModelSpec, current_request
from ..tensors import Array, Kind, SignatureSpec, Tensors, format_shape
from ..wire.predict import encode_classify, encode_regress

# Decoding a byte of examples, or writing one label, score or value of an answer, takes as long as
# decoding this many bytes of JSON numbers.
EXAMPLES_WORK = 16

# Labels as `bytes` and scores, shape (examples, classes). One of them may be None.
Classifications = tuple[Array | None, Array | None]


async def classify(plane: DataPlane, spec: ModelSpec, body: bytes) -> Answer:
    """Answers a `:classify` request; raises as `read_json_examples` and `run_classify`."""
    name, examples = await _decode(plane, body)
    async with Lease(plane, spec) as servable:
        classes, scores = await run_classify(plane, servable, name, examples)
    size = EXAMPLES_WORK * sum(part.size for part in (classes, scores) if part is not None)
    encoded = await plane.codec.run(size, "encode", encode_classify, classes, scores)
    return Answer(encoded, servable.version)


async def regress(plane: DataPlane, spec: ModelSpec, body: bytes) -> Answer:
    """Answers a `:regress` request; raises as `read_json_examples` and `run_regress`."""
    name, examples = await _decode(plane, body)
    async with Lease(plane, spec) as servable:
        values = await run_regress(plane, servable, name, examples)
    size = values.size * EXAMPLES_WORK
    return Answer(await plane.codec.run(size, "encode", encode_regress, values), servable.version)


async def _decode(plane: DataPlane, body: bytes) -> tuple[str, Array]:
    work = EXAMPLES_WORK * len(body)
    name, examples = await plane.codec.run(work, "decode", read_json_examples, body, plane.limits)
    current_request().rows = len(examples)
    return name, examples


async def run_classify(
    plane: DataPlane, servable: Servable, name: str, examples: Array
) -> Classifications:
    """Runs a signature that returns labels, scores or both per example.

    Like TensorFlow Serving we ignore the signature's method name: TensorFlow 2 saves every
    signature with the method name `tensorflow/serving/predict`, even one that classifies.

    Its outputs are `classes` (strings), `scores` (float32), or both, of shape (examples, classes).
    `examples` are serialized Example messages as `bytes`, shape (examples,).

    Raises:
        ServingError: The signature is missing or cannot classify examples; INVALID_ARGUMENT if its
            outputs have another form; or as `Servable.run`.
    """
    outputs = await _run(plane, servable, name, "classification", examples)
    classes, scores = outputs.get("classes"), outputs.get("scores")
    if classes is None and scores is None:
        raise invalid(
            "Expected classification signature outputs Tensor to contain at least one of "
            "{classes, scores}."
        )
    for output_name, output in (("classes", classes), ("scores", scores)):
        if output is None:
            continue
        if output.ndim != 2:
            raise invalid(
                "Expected Tensor shape: [batch_size num_classes] but got "
                f"{format_shape(output.shape)}"
            )
        if len(output) != len(examples):
            raise invalid(
                f"Expected {output_name} output batch size of {len(examples)}. Got: {len(output)}"
            )
    if classes is not None and classes.dtype != np.object_:
        raise invalid(f"Expected classes Tensor of DT_STRING. Got: {classes.dtype.name}")
    if scores is not None and scores.dtype != np.float32:
        raise invalid(f"Expected scores Tensor of DT_FLOAT. Got: {scores.dtype.name}")
    if classes is not None and scores is not None and classes.shape != scores.shape:
        raise invalid(
            "Tensors class and score should match in dim_size(1). "
            f"Got {classes.shape[1]} vs. {scores.shape[1]}"
        )
    return classes, scores


async def run_regress(plane: DataPlane, servable: Servable, name: str, examples: Array) -> Array:
    """Runs a signature that returns one value per example; as `run_classify`.

    Its output `outputs` (float32) has the shape (examples,) or (examples, 1).
    """
    outputs = await _run(plane, servable, name, "regression", examples)
    if "outputs" not in outputs:
        raise invalid("No regression outputs found in SignatureDef.")
    values = outputs["outputs"]
    if values.ndim not in (1, 2) or values.shape[1:] not in ((), (1,)):
        raise invalid(
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got "
            f"{format_shape(values.shape)}"
        )
    if len(values) != len(examples):
        raise invalid(
            f"Input batch size did not match output batch size: {len(examples)} vs. {len(values)}"
        )
    if values.dtype != np.float32:
        raise invalid(f"Expected output Tensor of DT_FLOAT. Got: {values.dtype.name}")
    return values.reshape(-1)


async def _run(
    plane: DataPlane, servable: Servable, name: str, kind: str, examples: Array
) -> Tensors:
    """Runs a signature; `kind` is `classification` or `regression`."""
    signature = servable.signatures.get(name)
    if signature is None:
        raise invalid(f"No signature was found with the name: {name}")
    if len(signature.inputs) != 1:
        raise invalid("Expected one input Tensor.")
    classifies, outputs = kind == "classification", signature.outputs.keys()
    if classifies and len(outputs) not in (1, 2):
        raise invalid(f"Expected one or two output Tensors, found {len(outputs)}")
    if not classifies and len(outputs) != 1:
        raise invalid("Expected one output Tensor.")
    if "inputs" not in signature.inputs:
        raise _unfit(f"No {kind} inputs found in SignatureDef: ", signature)
    if classifies and not {"classes", "scores"} & outputs:
        raise _unfit(
            'Expected classification signature outputs to contain at least one of "classes" or '
            '"scores". Signature was: ',
            signature,
        )
    if not classifies and "outputs" not in outputs:
        raise _unfit("No regression outputs found in SignatureDef: ", signature)
    dtype = signature.inputs["inputs"].dtype
    if dtype.kind is not Kind.STRING:
        raise invalid(f"Type mismatch: actual string vs. expect {dtype.name}")
    return await plane.run(servable, name, {"inputs": examples})


def _unfit(message: str, signature: SignatureSpec) -> ServingError:
    """Returns an error that ends with the signature in text format, as TensorFlow Serving does."""
    from google.protobuf import text_format

    definition = load_protos().meta_graph.SignatureDef()
    fill_signature(definition, signature)
    return failed_precondition(message + text_format.MessageToString(definition))
