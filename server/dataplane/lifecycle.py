"""Whether the gateway takes traffic, or is on its way out."""

import dataclasses


@dataclasses.dataclass
class Lifecycle:
    """State shared by the process's signal handling and the readiness endpoint.

    Attributes:
        draining: Whether the end has begun; readiness says no from then on.
        abandoned: Whether a model still ran when everything else had ended.
    """

    draining: bool = False
    abandoned: bool = False
