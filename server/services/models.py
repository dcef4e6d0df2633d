"""Descriptions of models: status, metadata, tables."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import orjson

from ..dependencies import DataPlane, Lease
from ..engines.base import Engine, Servable, VersionStatus
from ..errors import ServingError, internal
from ..request import ModelSpec
from ..tensors import LOOKUP_PREFIX, STATS_SIGNATURE, TensorSpec
from .lookup import unknown_table


def status_entry(status: VersionStatus) -> dict[str, Any]:
    """Returns one entry of `model_version_status`, in proto3's JSON: integers are strings."""
    return {
        "version": str(status.version),
        "state": status.state.value,
        "status": {"error_code": status.code.value, "error_message": status.message},
    }


async def status(plane: DataPlane, spec: ModelSpec) -> tuple[dict[str, Any], None]:
    """Describes the state of a model's versions; raises as `Engine.status`."""
    entries = [status_entry(each) for each in await plane.engine.status(spec)]
    return {"model_version_status": entries}, None


async def all_statuses(engine: Engine) -> AsyncIterator[tuple[str, Sequence[VersionStatus], str]]:
    """Yields each model's name, the state of its versions, and why there are none."""
    for name in sorted(engine.model_names()):
        try:
            yield name, await engine.status(ModelSpec(name)), ""
        except ServingError as error:
            yield name, (), error.message


async def metadata(plane: DataPlane, spec: ModelSpec) -> tuple[dict[str, Any], int]:
    """Describes a model's signatures, and returns the version; raises as `Engine.lease`."""
    async with Lease(plane, spec) as servable:
        definitions = {
            signature.name: {
                "inputs": _tensors(signature.inputs),
                "outputs": _tensors(signature.outputs),
                "method_name": signature.method_name,
                "defaults": {},
            }
            for signature in servable.described
        }
        version = servable.version
    told = {"name": spec.name, "signature_name": "", "version": str(version)}
    definition = {"signature_def": {"signature_def": definitions}}
    return {"model_spec": told, "metadata": definition}, version


def _tensors(specs: Mapping[str, TensorSpec]) -> dict[str, Any]:
    return {
        name: {
            "dtype": spec.dtype.enum_name,
            "tensor_shape": {
                "dim": [
                    {"size": "-1" if size is None else str(size), "name": ""}
                    for size in spec.shape or ()
                ],
                "unknown_rank": spec.shape is None,
            },
            "name": spec.tensor_name,
        }
        for name, spec in sorted(specs.items())
    }


async def tables(
    plane: DataPlane, spec: ModelSpec, table: str | None
) -> tuple[dict[str, Any], int]:
    """Describes a model's tables, and returns the version.

    `table` is the name of one table, or None for `{"tables": […]}` with all tables.

    Raises:
        ServingError: NOT_FOUND for an unknown table; see also `Engine.lease`.
    """
    async with Lease(plane, spec) as servable:
        known = await table_stats(servable)
        if table is None:
            return {"tables": known}, servable.version
        for entry in known:
            if entry.get("table") == table:
                return entry, servable.version
        raise unknown_table(spec, table, [str(entry.get("table")) for entry in known])


async def table_stats(servable: Servable) -> list[dict[str, Any]]:
    """Returns the descriptions of a model's tables; raises as `Servable.run`."""
    stats_signature = servable.signatures.get(STATS_SIGNATURE)
    if stats_signature is None or stats_signature.inputs:
        return [
            {
                "table": name.removeprefix(LOOKUP_PREFIX),
                "dim": (signature.outputs["embeddings"].shape or (None,))[-1],
                "key_dtype": signature.inputs["ids"].dtype.array_name,
                "value_dtype": signature.outputs["embeddings"].dtype.array_name,
            }
            for name, signature in sorted(servable.signatures.items())
            if signature.is_table
        ]
    outputs = await servable.run(STATS_SIGNATURE, {})
    try:
        stats = orjson.loads(outputs["stats"].item())
    except (KeyError, ValueError):
        stats = None
    if not isinstance(stats, list) or not all(isinstance(entry, dict) for entry in stats):
        raise internal(f"signature {STATS_SIGNATURE} did not return a list of tables")
    return stats
