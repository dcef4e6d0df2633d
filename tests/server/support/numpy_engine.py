"""An engine with numpy functions as models: the gateway without TensorFlow."""

import asyncio
import inspect

import numpy as np

from server.engines.base import ModelSpec, Servable, VersionState, VersionStatus, chosen_statuses
from server.protos.modules import load_protos
from server.tensors import SignatureSpec, TensorSpec, dtype_of_name


def tensor(name: str, dtype: str, *shape: int | None) -> TensorSpec:
    return TensorSpec(name, dtype_of_name(dtype), shape, f"{name}:0")


def signature(
    name: str, inputs: list[TensorSpec], outputs: list[TensorSpec], method: str = "predict"
) -> SignatureSpec:
    return SignatureSpec(
        name,
        {spec.name: spec for spec in inputs},
        {spec.name: spec for spec in outputs},
        f"tensorflow/serving/{method}",
    )


def lookup_signature(table: str, keys: str, dim: int) -> SignatureSpec:
    outputs = [tensor("embeddings", "float", None, dim), tensor("found", "bool", None)]
    return signature(f"de_lookup/{table}", [tensor("ids", keys, None)], outputs)


class NumpyServable:
    """One version. It counts its leases."""

    def __init__(self, version, functions, seconds):
        self.version = version
        self.seconds = seconds
        self.leases = 0
        self.functions = functions
        self.signatures = {name: spec for name, (spec, _) in functions.items()}
        self.described = list(self.signatures.values())

    async def run(self, signature, inputs):
        if self.seconds:
            await asyncio.sleep(self.seconds)
        outputs = self.functions[signature][1](**inputs)
        return dict(await outputs if inspect.isawaitable(outputs) else outputs)

    def release(self):
        self.leases -= 1


def ages(examples):
    """Returns the value of the feature `age` of each example, with hardly any CPU time."""
    read = load_protos().Example.FromString
    known = {}
    for example in dict.fromkeys(examples.tolist()):
        feature = read(example).features.feature["age"]
        known[example] = [*feature.int64_list.value, *feature.float_list.value][0]
    return np.array([known[example] for example in examples.tolist()], np.float32)


class NumpyEngine:
    """Serves one version of one model, `m`."""

    def __init__(self, functions=None, is_ready=True, version=3, seconds=0.0):
        functions = FUNCTIONS if functions is None else functions
        self.servable = NumpyServable(version, functions, seconds)
        self.is_ready = is_ready
        self.events: list[str] = []

    @property
    def leases(self):
        return self.servable.leases

    async def start(self):
        self.events.append("start")

    async def close(self):
        self.events.append("close")

    def model_names(self):
        return frozenset({"m"})

    def started(self):
        return self.is_ready

    def ready(self):
        return self.is_ready

    async def reload(self):
        self.events.append("reload")

    def upstreams(self):
        return {"u": "closed"}

    def drain(self, names):
        self.drained = names

    def component_versions(self):
        return {"numpy": np.__version__}

    async def status(self, spec: ModelSpec):
        status = VersionStatus(self.servable.version, VersionState.AVAILABLE)
        return chosen_statuses(spec, [status] if spec.name == "m" else [])

    async def lease(self, spec: ModelSpec) -> Servable:
        if spec.name != "m" or spec.version not in (None, self.servable.version):
            raise spec.not_found()
        if spec.label is not None:
            raise spec.unknown_label()
        self.servable.leases += 1
        return self.servable


ROWS = {7: [1.0, 2.0], 8: [3.0, 6.0], 2**53 + 1: [5.0, -5.0]}


def _find(rows, ids):
    found = np.array([i in rows for i in ids.tolist()], bool)
    values = [rows.get(i, [-1.0, -1.0]) for i in ids.tolist()]
    return {"embeddings": np.array(values, np.float32).reshape(-1, 2), "found": found}


def _fail(x):
    raise ValueError(f"secret at {x}")


X, Y = [tensor("x", "float", None)], [tensor("y", "float", None)]
NUMBER, TEXT = tensor("a", "int64", None), tensor("s", "string", None)
EXAMPLES = [tensor("inputs", "string", None)]
FUNCTIONS = {
    spec.name: (spec, run)
    for spec, run in (
        (signature("serving_default", X, Y), lambda x: {"y": x / 2 + 2}),
        (signature("echo64", [NUMBER], [NUMBER]), lambda a: {"a": a}),
        (
            signature("both", [NUMBER, TEXT], [NUMBER, tensor("s_bytes", "string", None)]),
            lambda a, s: {"a": a, "s_bytes": s},
        ),
        (signature("fail", X, []), _fail),
        (
            signature("half_the_age", EXAMPLES, [tensor("outputs", "float", None)], "regress"),
            lambda inputs: {"outputs": ages(inputs) / 2},
        ),
        # This signature classifies, but has the method name of predict, as TensorFlow 2 saves it.
        (
            signature("old", EXAMPLES, [tensor("scores", "float", None, 1)]),
            lambda inputs: {"scores": ages(inputs).reshape(-1, 1)},
        ),
        (lookup_signature("user", "int64", 2), lambda ids: _find(ROWS, ids)),
        (lookup_signature("item", "string", 2), lambda ids: _find({b"lamp": [1.0, 2.0]}, ids)),
    )
}
