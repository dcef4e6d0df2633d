"""The image's health check: asks the gateway of this container whether it is ready.

    python -m server.process.health

Exits with 0 if it is ready. Connects to the loopback address without a proxy, in plain text or with
TLS. The port is DE_GATEWAY_PORT, or 8501. The check has no client certificate: if the gateway
requires one, the check only sees that the gateway listens.
"""

import http.client
import os
import ssl
import sys

_HOST = "127.0.0.1"
_SECONDS = 2.0


def is_ready(port: int) -> bool:
    """Returns whether the gateway on a port of this machine is ready."""
    # Do not verify the certificate: it names the host that clients use, not the loopback address.
    unverified = ssl.create_default_context()
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE
    for connection in (
        http.client.HTTPConnection(_HOST, port, timeout=_SECONDS),
        http.client.HTTPSConnection(_HOST, port, timeout=_SECONDS, context=unverified),
    ):
        try:
            connection.connect()
        except OSError:
            return False
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except TimeoutError:
            return False
        except (OSError, http.client.HTTPException):
            continue
        finally:
            connection.close()
    return True  # the TLS connection worked; the gateway only missed a client certificate


def port_of(setting: str) -> int:
    """Returns the port; 8501 if Kubernetes has set the variable, to a service's address."""
    return int(setting) if setting.strip().isdecimal() else 8501


if __name__ == "__main__":
    sys.exit(not is_ready(port_of(os.environ.get("DE_GATEWAY_PORT", ""))))
