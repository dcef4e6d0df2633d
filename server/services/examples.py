"""`:classify` and `:regress`: labels and values for examples with named features.

A model's outputs are checked as TensorFlow Serving checks them.
"""

import numpy as np

from ..dependencies import DataPlane, Lease
from ..engines.base import Servable
from ..errors import ServingError, failed_precondition, invalid, unimplemented
from ..protos.examples import read_json_examples
from ..protos.modules import load_protos
from ..protos.tensors import fill_signature
from ..request import Answer, ModelSpec, current_request
from ..tensors import CLASSIFY_METHOD, REGRESS_METHOD, Array, Kind, SignatureSpec, format_shape
from ..wire.predict import encode_classify, encode_regress

# Decoding a byte of examples, or writing one label, score or value of an answer, takes as long as
# decoding this many bytes of JSON numbers.
EXAMPLES_WORK = 16


async def examples(plane: DataPlane, spec: ModelSpec, body: bytes, method: str) -> Answer:
    """Answers a `:classify` or `:regress` request; `method` as for `run_examples`.

    Raises:
        ServingError: See `read_json_examples` and `run_examples`.
    """
    work = EXAMPLES_WORK * len(body)
    name, rows = await plane.codec.run(work, "decode", read_json_examples, body, plane.limits)
    current_request().rows = len(rows)
    async with Lease(plane, spec) as servable:
        found = await run_examples(plane, servable, name, method, rows)
    encode = encode_classify if method == CLASSIFY_METHOD else encode_regress
    size = EXAMPLES_WORK * sum(part.size for part in found)
    return Answer(await plane.codec.run(size, "encode", encode, *found), servable.version)


async def run_examples(
    plane: DataPlane, servable: Servable, name: str, method: str, examples: Array
) -> tuple[Array, ...]:
    """Runs a signature that classifies examples, or returns one value per example.

    Like TensorFlow Serving we ignore the signature's method name: TensorFlow 2 saves every
    signature with the method name `tensorflow/serving/predict`, even one that classifies.

    For the `method` `CLASSIFY_METHOD` the outputs are `classes` (strings), `scores` (float32), or
    both, of shape (examples, classes). For `REGRESS_METHOD` the output `outputs` (float32) has the
    shape (examples,) or (examples, 1). `examples` are serialized Example messages as `bytes`.

    Returns:
        Labels as `bytes` and scores, both of shape (examples, classes), or values of shape
        (examples,). A missing label is empty, and a missing score is zero.

    Raises:
        ServingError: The signature is missing or cannot run examples; INVALID_ARGUMENT if its
            outputs have another form; UNIMPLEMENTED for another method; or as `Servable.run`.
    """
    classifies = method == CLASSIFY_METHOD
    if not classifies and method != REGRESS_METHOD:
        raise unimplemented(f"Unsupported signature method_name: {method}")
    kind = "classification" if classifies else "regression"
    signature = servable.signatures.get(name)
    if signature is None:
        raise invalid(f"No signature was found with the name: {name}")
    if len(signature.inputs) != 1:
        raise invalid("Expected one input Tensor.")
    outputs = signature.outputs.keys()
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
    arrays = await plane.run(servable, name, {"inputs": examples})
    check = _classifications if classifies else _values
    return check(arrays, len(examples))


def _classifications(outputs: dict[str, Array], count: int) -> tuple[Array, ...]:
    classes, scores = outputs.get("classes"), outputs.get("scores")
    found = classes if scores is None else scores
    if found is None:
        raise invalid(
            "Expected classification signature outputs Tensor to contain at least one of "
            "{classes, scores}."
        )
    for name, output in (("classes", classes), ("scores", scores)):
        if output is None:
            continue
        if output.ndim != 2:
            raise invalid(
                "Expected Tensor shape: [batch_size num_classes] but got "
                f"{format_shape(output.shape)}"
            )
        if len(output) != count:
            raise invalid(f"Expected {name} output batch size of {count}. Got: {len(output)}")
    if classes is None:
        classes = np.full(found.shape, b"", object)
    if scores is None:
        scores = np.zeros(found.shape, np.float32)
    if classes.dtype != np.object_:
        raise invalid(f"Expected classes Tensor of DT_STRING. Got: {classes.dtype.name}")
    if scores.dtype != np.float32:
        raise invalid(f"Expected scores Tensor of DT_FLOAT. Got: {scores.dtype.name}")
    if classes.shape != scores.shape:
        raise invalid(
            "Tensors class and score should match in dim_size(1). "
            f"Got {classes.shape[1]} vs. {scores.shape[1]}"
        )
    return classes, scores


def _values(outputs: dict[str, Array], count: int) -> tuple[Array, ...]:
    if "outputs" not in outputs:
        raise invalid("No regression outputs found in SignatureDef.")
    values = outputs["outputs"]
    if values.ndim not in (1, 2) or values.shape[1:] not in ((), (1,)):
        raise invalid(
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got "
            f"{format_shape(values.shape)}"
        )
    if len(values) != count:
        raise invalid(
            f"Input batch size did not match output batch size: {count} vs. {len(values)}"
        )
    if values.dtype != np.float32:
        raise invalid(f"Expected output Tensor of DT_FLOAT. Got: {values.dtype.name}")
    return (values.reshape(-1),)


def _unfit(message: str, signature: SignatureSpec) -> ServingError:
    """Returns an error that ends with the signature in text format, as TensorFlow Serving does."""
    from google.protobuf import text_format

    definition = load_protos().SignatureDef()
    fill_signature(definition, signature)
    return failed_precondition(message + text_format.MessageToString(definition))
