"""The protocol between the gateway and whatever runs the models.

The gateway asks an engine for a *lease* on one version of a model, reads its signatures, and
runs one of them. As long as the lease is held that version stays, so that a request is
decoded for, run by and answered from one and the same version while others come and go.
"""

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from server.errors import Code, ServingError
from server.tensors import Array, Example, SignatureSpec, Tensors

CLASSIFY_METHOD = "tensorflow/serving/classify"
REGRESS_METHOD = "tensorflow/serving/regress"


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """Which model, and which version of it: a number, a label, or neither for the latest."""

    name: str
    version: int | None = None
    label: str | None = None

    def not_found(self) -> ServingError:
        """Returns the error for a model or version that does not serve.

        A label is looked for first: one of an unknown model is an unknown label.
        """
        if self.label is not None:
            return self.unknown_label()
        wanted = "Latest" if self.version is None else "Specific"
        version = "" if self.version is None else f", {self.version}"
        return ServingError(
            Code.NOT_FOUND, f"Servable not found for request: {wanted}({self.name}{version})"
        )

    def unknown_label(self) -> ServingError:
        """Returns the error for a label that no version has."""
        return ServingError(
            Code.INVALID_ARGUMENT, f"Unrecognized servable version label: {self.label}"
        )


class VersionState(enum.Enum):
    """Where a version is in its life; the names are TensorFlow Serving's."""

    START = "START"
    LOADING = "LOADING"
    AVAILABLE = "AVAILABLE"
    UNLOADING = "UNLOADING"
    END = "END"


@dataclasses.dataclass(frozen=True)
class VersionStatus:
    """The state of one version.

    Attributes:
        version: Its number.
        state: Where it is in its life.
        code: Why it failed to load if it did, with `message`.
        message: A sentence for the status report.
        published: When it was written, in seconds since 1970; 0 if unknown.
    """

    version: int
    state: VersionState
    code: Code = Code.OK
    message: str = ""
    published: float = 0.0


@dataclasses.dataclass(frozen=True)
class Classifications:
    """What `:classify` answers.

    Attributes:
        classes: Labels as `bytes`, shape (examples, classes), or None.
        scores: Scores, same shape, or None.
    """

    classes: Array | None
    scores: Array | None


class Servable(Protocol):
    """One version of a model, held by a lease."""

    @property
    def version(self) -> int:
        """The version's number."""
        ...

    @property
    def signatures(self) -> Mapping[str, SignatureSpec]:
        """The signatures that can be run, by name."""
        ...

    @property
    def described(self) -> Sequence[SignatureSpec]:
        """All signatures the model declares, as its metadata lists them."""
        ...

    async def run(self, signature: str, inputs: Tensors) -> dict[str, Array]:
        """Runs a signature.

        Args:
            signature: A key of `signatures`.
            inputs: Exactly the signature's inputs, of its element types.

        Returns:
            All outputs by name.

        Raises:
            ServingError: The model refused the inputs (INVALID_ARGUMENT), failed
                (INTERNAL), or too many requests wait (RESOURCE_EXHAUSTED).
        """
        ...

    async def classify(
        self, signature: str, examples: Sequence[Example], context: Example | None
    ) -> Classifications:
        """Runs a signature that gives examples labels, scores or both; errors as for `run`."""
        ...

    async def regress(
        self, signature: str, examples: Sequence[Example], context: Example | None
    ) -> Array:
        """Runs a signature that gives each example one value; errors as for `run`."""
        ...


class Engine(Protocol):
    """Everything that can be served. Its methods are called from one event loop."""

    async def start(self) -> None:
        """Begins serving and returns; models may still be loading. Called once."""
        ...

    async def close(self) -> None:
        """Finishes the runs under way, releases every model. Called once, after `start`."""
        ...

    def model_names(self) -> frozenset[str]:
        """Returns the models known now, whether or not a version of them serves."""
        ...

    def started(self) -> bool:
        """Returns whether every model present at the start was loaded, or failed to."""
        ...

    def ready(self) -> bool:
        """Returns whether a model serves, and so do all that were promised and are still there."""
        ...

    async def reload(self) -> None:
        """Looks for new versions now instead of at the next poll."""
        ...

    def upstreams(self) -> Mapping[str, str]:
        """Returns the model servers behind the engine by name, and the state of each."""
        ...

    def drain(self, names: frozenset[str]) -> None:
        """Sends no requests to these upstreams, and to all others again."""
        ...

    def component_versions(self) -> Mapping[str, str]:
        """Returns the software the engine runs on, for `/version`."""
        ...

    async def status(self, spec: ModelSpec) -> Sequence[VersionStatus]:
        """Returns the state of a model's versions, highest first.

        Raises:
            ServingError: NOT_FOUND for an unknown model or version, UNAVAILABLE before the
                models are known, INVALID_ARGUMENT for an unknown label.
        """
        ...

    def lease(self, spec: ModelSpec) -> AbstractAsyncContextManager[Servable]:
        """Leases the version that `spec` means at this moment.

        Raises:
            ServingError: On entering: NOT_FOUND if it does not serve, UNAVAILABLE while it is
                being loaded, INVALID_ARGUMENT for an unknown label.
        """
        ...
