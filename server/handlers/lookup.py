"""`:lookup`: embeddings of ids, row by row or pooled, from a model's tables."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from server.engines.base import Engine, ModelSpec
from server.errors import Code, ServingError, invalid
from server.handlers.answer import Answer, codec
from server.tensors import Array, SignatureSpec
from server.wire.limits import Limits
from server.wire.lookup import Ids, LookupRequest, decode_ids, decode_lookup
from server.wire.pooling import (
    Found,
    bag_found,
    embeddings_b64,
    embeddings_json,
    encode_lookup,
    nest,
    pool,
)

PREFIX = "de_lookup/"
_NAMED_IN_ERROR = 5


async def lookup(engine: Engine, spec: ModelSpec, body: bytes, limits: Limits) -> Answer:
    """Answers a `:lookup` request.

    The model's signature `de_lookup/<table>` takes `ids` of shape (n,) and returns
    `embeddings` of shape (n, dim) and `found` of shape (n,).

    Raises:
        ServingError: INVALID_ARGUMENT for a wrong body; NOT_FOUND for an unknown table, and
            for unknown ids if the request asks for that; see also `Servable.run`.
    """
    request = decode_lookup(body, limits)
    async with engine.lease(spec) as servable:
        signature = _table_signature(servable.signatures, request.table, spec)
        dtype = signature.inputs["ids"].dtype
        ids = await codec(len(body), lambda: decode_ids(request.ids, dtype, limits))
        if request.combiner != "none" and ids.lengths is None:
            raise invalid(
                f"Combiner {request.combiner} needs `ids` to be a list of lists, one a bag: "
                "wrap a single bag in another list."
            )
        outputs = await servable.run(signature.name, {"ids": ids.flat})
    rows, found = outputs["embeddings"], outputs["found"].astype(np.bool_)
    if request.missing == "error" and not found.all():
        raise _missing_ids(signature.name.removeprefix(PREFIX), ids.flat, found)
    encoded = await codec(rows.size, lambda: encode_lookup(_answer(request, ids, rows, found)))
    return Answer(encoded, servable.version)


def table_names(signatures: Mapping[str, SignatureSpec]) -> list[str]:
    """Returns the tables a model offers for lookup."""
    return sorted(
        name.removeprefix(PREFIX)
        for name, signature in signatures.items()
        if name.startswith(PREFIX)
        and "ids" in signature.inputs
        and {"embeddings", "found"} <= signature.outputs.keys()
    )


def unknown_table(spec: ModelSpec, table: str, tables: list[str]) -> ServingError:
    """Returns the error for a table a model does not have; names those it has."""
    if not tables:
        return ServingError(Code.NOT_FOUND, f"Model {spec.name} has no embedding tables")
    return ServingError(
        Code.NOT_FOUND,
        f"Table not found in model {spec.name}. Received: table={table}. "
        f"Its tables: {', '.join(tables)}",
    )


def _table_signature(
    signatures: Mapping[str, SignatureSpec], table: str, spec: ModelSpec
) -> SignatureSpec:
    tables = table_names(signatures)
    if not table and len(tables) == 1:
        table = tables[0]
    if table in tables:
        return signatures[PREFIX + table]
    if not table and tables:
        raise invalid(
            f"`table` must name one of the tables of model {spec.name}: {', '.join(tables)}"
        )
    raise unknown_table(spec, table, tables)


def _answer(request: LookupRequest, ids: Ids, rows: Array, found: Found) -> dict[str, Any]:
    nullable = request.missing == "null"
    present: Found | None = found if nullable else None
    lengths = ids.lengths
    if request.combiner != "none" and lengths is not None:
        counted = found if nullable else np.ones_like(found)
        rows = pool(rows, counted, lengths, request.combiner)
        present = bag_found(found, lengths) if nullable else None
        lengths = None
    encode = embeddings_b64 if request.format == "b64" else embeddings_json
    return {
        "embeddings": encode(rows, present, lengths),
        "found": nest(found.tolist(), ids.lengths),
    }


def _missing_ids(table: str, ids: Array, found: Found) -> ServingError:
    missing = ids[~found]
    named = ", ".join(
        item.decode(errors="replace") if isinstance(item, bytes) else str(item)
        for item in missing[:_NAMED_IN_ERROR].tolist()
    )
    more = ", …" if len(missing) > _NAMED_IN_ERROR else ""
    return ServingError(
        Code.NOT_FOUND,
        f"Ids not found in table {table}: {named}{more} ({len(missing)} of {len(ids)})",
    )
