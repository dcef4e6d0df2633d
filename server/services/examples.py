"""`:classify` and `:regress`: labels and values for examples with named features."""

from ..dependencies import DataPlane, Lease
from ..engines.base import ModelSpec
from ..engines.embedded.example_outputs import Classifications, classifications, regressions
from ..errors import Code, ServingError, invalid
from ..protos.examples import read_json_examples
from ..protos.modules import load_protos
from ..protos.tensors import fill_signature
from ..request import Answer, current_request
from ..tensors import Array, SignatureSpec
from ..wire.predict import encode_classify, encode_regress

# Decoding a byte of examples, or writing one label, score or value of an answer, takes as long as
# decoding this many bytes of JSON numbers.
EXAMPLES_WORK = 16


async def classify(plane: DataPlane, spec: ModelSpec, body: bytes) -> Answer:
    """Answers a `:classify` request; raises as `read_json_examples` and `run_classify`."""
    name, examples = await _decode(plane, body)
    with await plane.lease(spec) as servable:
        classes, scores = await run_classify(servable, name, examples)
    size = EXAMPLES_WORK * sum(part.size for part in (classes, scores) if part is not None)
    encoded = await plane.codec.run(size, "encode", encode_classify, classes, scores)
    return Answer(encoded, servable.version)


async def regress(plane: DataPlane, spec: ModelSpec, body: bytes) -> Answer:
    """Answers a `:regress` request; raises as `read_json_examples` and `run_regress`."""
    name, examples = await _decode(plane, body)
    with await plane.lease(spec) as servable:
        values = await run_regress(servable, name, examples)
    size = values.size * EXAMPLES_WORK
    return Answer(await plane.codec.run(size, "encode", encode_regress, values), servable.version)


async def _decode(plane: DataPlane, body: bytes) -> tuple[str, Array]:
    work = EXAMPLES_WORK * len(body)
    name, examples = await plane.codec.run(work, "decode", read_json_examples, body, plane.limits)
    current_request().rows = len(examples)
    return name, examples


async def run_classify(servable: Lease, name: str, examples: Array) -> Classifications:
    """Runs a signature that returns labels, scores or both per example.

    Like TensorFlow Serving we ignore the signature's method name: TensorFlow 2 saves every
    signature with the method name `tensorflow/serving/predict`, even one that classifies.

    Args:
        servable: The leased model.
        name: The signature.
        examples: Serialized Example messages as `bytes`, shape (examples,).

    Raises:
        ServingError: The signature is missing or cannot classify examples; or as `Servable.run`.
    """
    signature = _with_examples(servable, name, "classification")
    if not {"classes", "scores"} & signature.outputs.keys():
        raise _unfit(
            'Expected classification signature outputs to contain at least one of "classes" or '
            '"scores". Signature was: ',
            signature,
        )
    return classifications(await servable.run(name, {"inputs": examples}), len(examples))


async def run_regress(servable: Lease, name: str, examples: Array) -> Array:
    """Runs a signature that returns one value per example; as `run_classify`."""
    signature = _with_examples(servable, name, "regression")
    if "outputs" not in signature.outputs:
        raise _unfit("No regression outputs found in SignatureDef: ", signature)
    return regressions(await servable.run(name, {"inputs": examples}), len(examples))


def _with_examples(servable: Lease, name: str, kind: str) -> SignatureSpec:
    signature = servable.signatures.get(name)
    if signature is None:
        raise invalid(f"No signature was found with the name: {name}")
    if len(signature.inputs) != 1:
        raise invalid("Expected one input Tensor.")
    count = len(signature.outputs)
    if kind == "classification" and count not in (1, 2):
        raise invalid(f"Expected one or two output Tensors, found {count}")
    if kind == "regression" and count != 1:
        raise invalid("Expected one output Tensor.")
    if "inputs" not in signature.inputs:
        raise _unfit(f"No {kind} inputs found in SignatureDef: ", signature)
    return signature


def _unfit(message: str, signature: SignatureSpec) -> ServingError:
    """Returns an error that ends with the signature in text format, as TensorFlow Serving does."""
    from google.protobuf import text_format

    definition = load_protos().meta_graph.SignatureDef()
    fill_signature(definition, signature)
    text = message + text_format.MessageToString(definition)
    return ServingError(Code.FAILED_PRECONDITION, text)
