"""Checks files, keys, models and ports before the gateway listens."""

import importlib.util
import itertools
import logging
import os
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path

from .. import COMMAND
from ..engines.chosen import routes_of
from ..engines.embedded.model_folder import VersionPolicy, folder_of, found_models
from ..engines.upstream.endpoint import check_client_certificate, parse_upstreams, upstream_token
from ..errors import StartError
from ..keys import KeyRing, keys_of
from ..settings import Settings, flag_of
from .server import listening_socket, ports_of

_LOG = logging.getLogger("server")


def check_start(settings: Settings, *, is_worker: bool = False) -> KeyRing | None:
    """Checks what a start needs; returns the accepted keys, or None if no key is needed.

    `is_worker` is True for a worker process: its supervisor has checked ports and models.

    Raises:
        StartError: A port is taken, a file cannot be used, or settings contradict each other. The
            errors of keys and tokens pass through.
    """
    keys = keys_of(settings)
    if settings.admin_port is not None and (keys is None or not keys.allows("admin")):
        raise StartError(
            "The admin port needs a key of the scope admin: make one with "
            f"`{COMMAND}.keys NAME admin` and give its file as --keys-file."
        )
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise StartError("TLS needs both --tls-cert and --tls-key.")
    if settings.tls_client_ca is not None and settings.tls_cert is None:
        raise StartError(
            "Client certificates need --tls-cert and --tls-key. "
            f"Received: --tls-client-ca={settings.tls_client_ca}"
        )
    check_client_certificate(settings)
    for name, path in settings:
        is_file = isinstance(path, Path) and name.startswith(("tls_", "upstream_"))
        if is_file and not (path.is_file() and os.access(path, os.R_OK)):
            raise StartError(
                f"The file must exist and be readable. Received: {flag_of(name)}={path}"
            )
    if settings.routes_file is not None and not settings.routes_file.parent.is_dir():
        raise StartError(
            "The folder of the routes file must exist: create it, or name another file. "
            f"Received: --routes-file={settings.routes_file}"
        )
    _check_certificates(settings, "tls", "tls_client_ca")
    _check_certificates(settings, "upstream", "upstream_ca")
    labels = routes_of(settings).labels
    if settings.engine == "embedded":
        if importlib.util.find_spec("tensorflow") is None:
            raise StartError("The embedded engine needs TensorFlow: pip install tensorflow.")
        folder_of(settings).check()
    else:
        parse_upstreams(settings.upstreams)
        upstream_token(settings)
    if not is_worker:
        _check_ports(settings)
        if settings.engine == "embedded":
            _warn_of_missing(settings, labels)
    return keys


def _check_ports(settings: Settings) -> None:
    """Raises `StartError` if a port is taken, even by a process that lets others share the port."""
    ports = ports_of(settings)
    for (flag, host, port), (second, other, same) in itertools.combinations(ports, 2):
        every = "::" in (host, other) or ("0.0.0.0" in (host, other) and ":" not in host + other)
        if port and port == same and (host == other or every):
            raise StartError(
                f"{flag} and {second} must differ. Received: {port} for both. "
                f"Choose another with {second}."
            )
    for flag, host, port in ports:
        listening_socket(host, port, flag=flag, listen=False).close()


def _check_certificates(settings: Settings, side: str, authority: str) -> None:
    """Raises `StartError` if a certificate or its private key cannot be used."""
    certificate, key, ca = (
        getattr(settings, name) for name in (f"{side}_cert", f"{side}_key", authority)
    )
    try:
        if certificate is not None:
            # With the empty password, a key that needs a password fails to load. Without any,
            # OpenSSL would ask for the password on the terminal and wait.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key, password="")
    except OSError as error:
        raise StartError(
            "The files must hold a certificate and its private key, as PEM and without a "
            f"password. Received: --{side}-cert={certificate} --{side}-key={key}: {error}"
        ) from None
    try:
        if ca is not None:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(ca)
    except OSError as error:
        raise StartError(
            f"The file must hold certificates as PEM. Received: {flag_of(authority)}={ca}: {error}"
        ) from None


def _warn_of_missing(settings: Settings, labels: Mapping[str, Mapping[str, int]]) -> None:
    """Logs a sentence for each version that the settings name and that is missing."""
    models = found_models(settings)
    if not any(models.values()):
        _LOG.warning(
            "The model folder must hold a version to serve. Received: --model-dir=%s, without "
            "one. Write a model to a numbered folder in it, e.g. %s.",
            settings.model_dir,
            folder_of(settings).path / "1",
        )
        return
    policy = VersionPolicy.parse(settings.version_policy)
    for model, versions in models.items():
        missing = sorted((policy.numbers or frozenset()) - versions.keys())
        if missing:
            _LOG.warning(
                "--version-policy must name existing versions. Received: %s; model %s has "
                "%s. Write the missing ones, or name others.",
                settings.version_policy,
                model,
                _listed(versions),
            )
    for model, named in labels.items():
        served = policy.candidates(models.get(model, {}))[: policy.count]
        for label, version in named.items():
            if version not in served:
                _LOG.warning(
                    "--labels must name versions to serve. Received: %s:%s=%d; --version-policy=%s "
                    "serves %s of model %s. Write that version, or change one of the flags.",
                    model,
                    label,
                    version,
                    settings.version_policy,
                    _listed(served),
                    model,
                )


def _listed(versions: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(versions))) or "no version"
