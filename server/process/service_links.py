"""Environment variables that Kubernetes sets for a service whose name begins with `de-gateway`."""

import re
from collections.abc import MutableMapping

from server.settings import ENV_PREFIX

_NAME = re.compile(
    ENV_PREFIX + r"(\w+_)?"
    r"(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_ADDRESS = re.compile(r"(tcp|udp|sctp)://[\w.:\[\]-]+:\d+")


def drop_service_links(environment: MutableMapping[str, str]) -> list[str]:
    """Removes such variables from an environment, because they look like settings.

    A service called `de-gateway` sets `DE_GATEWAY_PORT=tcp://10.0.0.1:8501`, for example.

    Returns:
        The names of the removed variables, sorted.
    """
    links = sorted(
        name
        for name, value in environment.items()
        if name.startswith(ENV_PREFIX) and (_NAME.fullmatch(name) or _ADDRESS.fullmatch(value))
    )
    for name in links:
        del environment[name]
    return links
