"""The gateway's lifecycle: taking traffic, or shutting down."""

import dataclasses


@dataclasses.dataclass
class Lifecycle:
    """State that signal handlers and the readiness endpoint share.

    Attributes:
        draining: True once shutdown has begun. `/readyz` fails from then on.
        abandoned: True if a model was still running after everything else had ended.
    """

    draining: bool = False
    abandoned: bool = False
