"""A signature in protocol buffers' text format. TensorFlow Serving quotes it in errors."""

from collections.abc import Iterator, Mapping

from server.tensors import SignatureSpec, TensorSpec


def signature_text(signature: SignatureSpec) -> str:
    """Returns the text format of a signature's `SignatureDef` message."""
    lines = [*_tensors("inputs", signature.inputs), *_tensors("outputs", signature.outputs)]
    if signature.method_name:
        lines.append(f'method_name: "{signature.method_name}"')
    return "".join(f"{line}\n" for line in lines)


def _tensors(field: str, specs: Mapping[str, TensorSpec]) -> Iterator[str]:
    for name, spec in sorted(specs.items()):
        yield from (f"{field} {{", f'  key: "{name}"', "  value {")
        if spec.tensor_name:
            yield f'    name: "{spec.tensor_name}"'
        yield from (f"    dtype: {spec.dtype.enum_name}", "    tensor_shape {")
        if spec.shape is None:
            yield "      unknown_rank: true"
        for size in spec.shape or ():
            yield "      dim {"
            if size != 0:
                yield f"        size: {-1 if size is None else size}"
            yield "      }"
        yield from ("    }", "  }", "}")
