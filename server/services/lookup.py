"""`:lookup`: embeddings of ids from a model's tables, one per id or pooled."""

from collections.abc import Mapping

import msgspec
import numpy as np

from ..dependencies import DataPlane, Lease
from ..engines.base import Servable
from ..errors import ServingError, invalid, not_found
from ..limits import Limits
from ..request import Answer, ModelSpec, current_request
from ..tensors import LOOKUP_PREFIX, Array, SignatureSpec, dtype_of_numpy, written_work
from ..wire import lookup as wire
from ..wire.oip import InferRequest
from ..wire.paths import RAW, Layout
from ..wire.tensor_bytes import octets

_CHOICES = {"combiner": ("none", "sum", "mean", "sqrtn"), "missing": ("default", "error", "null")}
_NAMED_IN_ERROR = 5
# Writing a number as JSON takes as long as decoding this many bytes of JSON.
_NUMBER_WORK = 8
# Bytes are written in base64 this many times faster than bytes of JSON are decoded.
_BASE64_WORK = 8


async def lookup(plane: DataPlane, spec: ModelSpec, body: bytes, layout: Layout) -> Answer:
    """Answers a `:lookup` request.

    The model's signature `de_lookup/<table>` takes `ids` of shape (n,) and returns
    `embeddings` of shape (n, dim) and `found` of shape (n,).

    `body` is JSON, or little-endian ids. `layout` has the formats of request and answer. For a
    request in bytes, it also has the query parameters `table`, `combiner` and `missing`.

    Raises:
        ServingError: INVALID_ARGUMENT for a wrong body; NOT_FOUND for an unknown table, or for
            unknown ids with `missing` "error"; see also `Servable.run`.
    """
    async with Lease(plane, spec) as servable:
        if layout.raw_request:
            request = wire.LookupBody(ids=None, table=layout.query.get("table", ""))
            for choice, allowed in _CHOICES.items():
                value = layout.query.get(choice, allowed[0])
                if value not in allowed:
                    raise invalid(
                        f"The parameter {choice} must be one of {', '.join(allowed)}. "
                        f"Received: {value[:128]}"
                    )
                setattr(request, choice, value)
            signature = _table_signature(servable.signatures, request.table, spec)
            name = signature.name
            ids = wire.decode_raw_ids(body, signature.inputs["ids"].dtype, plane.limits)
        else:  # generated clients send the query's defaults with JSON too, where the body counts
            name, request, ids = await plane.codec.run(
                len(body), "decode", _decode, body, servable.signatures, spec, plane.limits
            )
        rows, found = await _find(plane, servable, name, ids, request.combiner, request.missing)
    lengths, nullable = ids.lengths, request.missing == "null"
    pooled_work = 0 if lengths is None else _pooled_work(rows, lengths)
    if not layout.raw_answer:
        if request.format == "list":
            work = max(pooled_work, rows.size) * _NUMBER_WORK
        else:
            work = max(pooled_work, rows.nbytes // _BASE64_WORK + len(rows))
        encoded = await plane.codec.run(
            work, "encode", wire.encode_lookup, request, lengths, rows, found
        )
        return Answer(encoded, servable.version)
    if lengths is not None or nullable or not rows.flags.c_contiguous:
        work = max(pooled_work, written_work({"": rows}))
        rows, _, _ = await plane.codec.run(
            work, "encode", wire.combined, rows, found, lengths, request.combiner, nullable
        )
    # The headers tell clients where the embeddings end.
    headers = (
        (b"x-embeddings-dtype", dtype_of_numpy(rows.dtype).array_name.encode()),
        (b"x-embeddings-shape", ",".join(map(str, rows.shape)).encode()),
    )
    return Answer((octets(rows), octets(found)), servable.version, RAW, headers)


def _decode(
    body: bytes, signatures: Mapping[str, SignatureSpec], spec: ModelSpec, limits: Limits
) -> tuple[str, wire.LookupBody, wire.Ids]:
    """Returns the signature's name, the request without its ids, and the ids as arrays."""
    request = wire.decode_lookup(body, limits)
    signature = _table_signature(signatures, request.table, spec)
    ids = wire.decode_ids(request.ids, signature.inputs["ids"].dtype, limits)
    return signature.name, msgspec.structs.replace(request, ids=None), ids


def _pooled_work(rows: Array, lengths: list[int]) -> int:
    """Returns the cost of combining rows, as the bytes of JSON that take as long to decode.

    An empty bag has no rows, but a vector in the answer.
    """
    return max(len(rows), len(lengths)) * rows.shape[1]


async def infer_lookup(
    plane: DataPlane, servable: Servable, signature: SignatureSpec, request: InferRequest
) -> dict[str, Array]:
    """Looks up the ids of an inference request; see `run_infer`."""
    asked = request.inputs["ids"]
    ids = wire.bags_of(asked, request.inputs.get("lengths"), plane.limits)
    combiner, missing = request.parameters.combiner, request.parameters.missing
    rows, found = await _find(plane, servable, signature.name, ids, combiner, missing)
    if combiner != "none" or missing == "null":
        work = rows.size if ids.lengths is None else _pooled_work(rows, ids.lengths)
        rows, _, _ = await plane.codec.run(
            work, "encode", wire.combined, rows, found, ids.lengths, combiner, missing == "null"
        )
    if combiner == "none":
        rows = rows.reshape(*asked.shape, *rows.shape[1:])
    return {"embeddings": rows, "found": found.reshape(asked.shape)}


async def _find(
    plane: DataPlane, servable: Servable, signature: str, ids: wire.Ids, combiner: str, missing: str
) -> tuple[Array, wire.Found]:
    """Returns a row for each id, and which ids the table holds."""
    if combiner != "none" and ids.lengths is None:
        raise invalid(
            f"Combiner {combiner} needs `ids` to be a list of lists, one per bag: "
            "wrap a single bag in another list."
        )
    call = current_request()
    call.rows = len(ids.flat)
    outputs = await plane.run(servable, signature, {"ids": ids.flat})
    rows, found = outputs["embeddings"], outputs["found"].astype(np.bool_, copy=False)
    table = signature.removeprefix(LOOKUP_PREFIX)
    call.lookups[table] = (len(found), len(found) - int(np.count_nonzero(found)))
    if missing == "error" and not found.all():
        missing_ids = ids.flat[~found]
        named = ", ".join(
            item[:128].decode(errors="replace") if isinstance(item, bytes) else str(item)
            for item in missing_ids[:_NAMED_IN_ERROR].tolist()
        )
        more = ", …" if len(missing_ids) > _NAMED_IN_ERROR else ""
        raise not_found(
            f"Ids not found in table {table}: {named}{more} ({len(missing_ids)} of {len(found)})"
        )
    return rows, found


def unknown_table(spec: ModelSpec, table: str, tables: list[str]) -> ServingError:
    """Returns the error for an unknown table; its message names the model's tables."""
    if not tables:
        return not_found(f"Model {spec.name} has no embedding tables")
    return not_found(
        f"Table not found in model {spec.name}. Received: table={table[:128]}. "
        f"Its tables: {', '.join(tables)}"
    )


def _table_signature(
    signatures: Mapping[str, SignatureSpec], table: str, spec: ModelSpec
) -> SignatureSpec:
    named = signatures.get(LOOKUP_PREFIX + table)
    if named is not None and named.is_table:
        return named
    tables = sorted(
        name.removeprefix(LOOKUP_PREFIX) for name, each in signatures.items() if each.is_table
    )
    if not table and len(tables) == 1:
        return signatures[LOOKUP_PREFIX + tables[0]]
    if not table and tables:
        raise invalid(
            f"`table` must name one of the tables of model {spec.name}: {', '.join(tables)}"
        )
    raise unknown_table(spec, table, tables)
