"""The protocol between the gateway and the engines that run models.

The gateway takes a *lease* on one version of a model, reads its signatures, and runs one. The
version stays in memory during the lease. So one version decodes, runs and answers a request, while
other versions come and go.
"""

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import Protocol

from ..errors import Code, not_found
from ..request import ModelSpec
from ..tensors import Array, SignatureSpec, Tensors


class VersionState(enum.Enum):
    """The state of a version's life, with TensorFlow Serving's names."""

    START = "START"
    LOADING = "LOADING"
    AVAILABLE = "AVAILABLE"
    UNLOADING = "UNLOADING"
    END = "END"


#: The numbers of the states in TensorFlow Serving's messages.
STATE_NUMBERS = {state: 10 * place for place, state in enumerate(VersionState, 1)}


@dataclasses.dataclass(frozen=True)
class VersionStatus:
    """The state of one version.

    Attributes:
        version: The version's number.
        state: Whether it is loading, serving or released.
        code: The error code if the version failed to load. `message` then has the reason.
        message: A sentence for the status report.
        published: Time when the version was written, in seconds since 1970; 0 if unknown.
    """

    version: int
    state: VersionState = VersionState.START
    code: Code = Code.OK
    message: str = ""
    published: float = 0.0


def chosen_statuses(spec: ModelSpec, statuses: Sequence[VersionStatus]) -> Sequence[VersionStatus]:
    """Returns the states of the versions that `spec` names, among the versions of its model.

    Raises:
        ServingError: NOT_FOUND if there are none.
    """
    if not statuses:
        raise not_found(f"Could not find any versions of model {spec.name}")
    if spec.version is None:
        return statuses
    chosen = [status for status in statuses if status.version == spec.version]
    if not chosen:
        raise not_found(f"Could not find version {spec.version} of model {spec.name}")
    return chosen


class Servable(Protocol):
    """One version of a model, leased."""

    @property
    def version(self) -> int:
        """The version's number."""

    @property
    def signatures(self) -> Mapping[str, SignatureSpec]:
        """The signatures that clients can run, by name."""

    @property
    def described(self) -> Sequence[SignatureSpec]:
        """All signatures that the model declares, by name, for its metadata."""

    async def run(self, signature: str, inputs: Tensors) -> dict[str, Array]:
        """Runs a signature.

        Args:
            signature: A key of `signatures`.
            inputs: Exactly the signature's inputs, with its element types.

        Returns:
            All outputs by name.

        Raises:
            ServingError: The model refused the inputs (INVALID_ARGUMENT), failed
                (INTERNAL), or too many requests wait (RESOURCE_EXHAUSTED).
        """

    def release(self) -> None:
        """Ends the lease."""


class Engine(Protocol):
    """Everything that can be served. One event loop calls its methods."""

    async def start(self) -> None:
        """Starts serving and returns; models may still be loading. Called once."""

    async def close(self) -> None:
        """Finishes the running requests and releases every model. Called once, after `start`."""

    def model_names(self) -> frozenset[str]:
        """Returns the names of the known models, serving or not."""

    def started(self) -> bool:
        """Returns whether every model that existed at the start has loaded or failed to load."""

    def ready(self) -> bool:
        """Returns whether the engine is ready for traffic.

        It is ready if at least one model serves, and every model that it must serve from the start
        serves or no longer exists.
        """

    async def reload(self) -> None:
        """Looks for new versions now instead of at the next poll."""

    def upstreams(self) -> Mapping[str, str]:
        """Returns the state of each model server behind the engine, by name; by default none."""
        return {}

    def drain(self, names: frozenset[str]) -> None:  # noqa: ARG002
        """Sends no requests to these upstreams, and resumes all others; by default does nothing."""
        return

    def component_versions(self) -> Mapping[str, str]:
        """Returns the engine's software versions, for `/version`."""

    async def status(self, spec: ModelSpec) -> Sequence[VersionStatus]:
        """Returns the state of a model's versions, highest first.

        Raises:
            ServingError: NOT_FOUND for an unknown model or version, UNAVAILABLE before the
                models are known, INVALID_ARGUMENT for an unknown label.
        """

    async def lease(self, spec: ModelSpec) -> Servable:
        """Leases the version that `spec` selects now. The caller releases it once.

        Raises:
            ServingError: NOT_FOUND if it does not serve, UNAVAILABLE while it is being loaded,
                INVALID_ARGUMENT for an unknown label.
        """
