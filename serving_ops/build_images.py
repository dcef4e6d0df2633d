"""Builds the images of the Dockerfile with Docker, or without it with buildah, as root on Debian.

    python serving_ops/build_images.py gateway trainer

Without Docker, the base is a Debian from debootstrap, because nothing can be pulled. The rest of
the Dockerfile is unchanged. The stage `model-server` needs TensorFlow Serving's images, and so
needs Docker.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Sequence

from versions import versions

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGETS = ("wheel", "trainer", "gateway", "gateway-front", "dev")
STAND_IN = "localhost/de-core/python"
CERTIFICATES = "/etc/ssl/certs"
SUITE = "bookworm"
PACKAGES = "python3,python3-venv,python3-pip,python3-dev,ca-certificates"


def run(*command: str | os.PathLike[str]) -> None:
    """Runs a command; raises if it fails."""
    print("+", *map(str, command), flush=True)
    subprocess.run([str(part) for part in command], check=True, stdin=subprocess.DEVNULL)


def output(*command: str | os.PathLike[str]) -> str:
    """Returns a command's output; empty if it failed."""
    done = subprocess.run(
        [str(part) for part in command], check=False, capture_output=True, text=True
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def build_arguments(values: dict[str, str]) -> list[str]:
    """Returns the options with the build arguments of an image."""
    return [part for item in values.items() for part in ("--build-arg", "=".join(item))]


class Docker:
    """Builds with Docker."""

    command: tuple[str, ...] = ("docker",)

    def build(self, target: str) -> None:
        """Builds one stage as the image de-core/TARGET."""
        tag = ("--tag", f"de-core/{target}")
        run(*self.command, "build", "--target", target, *tag, *build_arguments(versions()), ROOT)

    def size(self, target: str) -> str:
        """Returns an image's size as text."""
        return output(*self.command, "images", "--format", "{{.Size}}", f"de-core/{target}")


class Buildah:
    """Builds with buildah, in a chroot, on a Debian from debootstrap."""

    def __init__(self, storage: pathlib.Path) -> None:
        # overlay stores only the changes of a layer, vfs stores all files. Not every machine
        # supports overlay.
        overlay = ("buildah", "--storage-driver", "overlay", "--root", str(storage / "overlay"))
        vfs = ("buildah", "--storage-driver", "vfs", "--root", str(storage / "vfs"))
        self.command = overlay if output(*overlay, "info") else vfs

    def make_base(self, work: pathlib.Path) -> None:
        """Creates the base image in place of Python's image, unless it exists."""
        if output(*self.command, "images", "-q", STAND_IN):
            return
        system = work / "debian"
        if not system.exists():
            unfinished = work / "debian.unfinished"
            run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, unfinished)
            shutil.rmtree(unfinished / "var/cache/apt/archives")
            for name in ("python", "python3"):
                (unfinished / "usr/local/bin" / name).symlink_to("/usr/bin/python3")
            unfinished.rename(system)
        container = output(*self.command, "from", "scratch")
        run(*self.command, "add", "--quiet", container, system, "/")
        # Debian's pip requires this option to install into the system's Python.
        settings = ("PIP_BREAK_SYSTEM_PACKAGES=1", "PIP_ROOT_USER_ACTION=ignore")
        settings += (f"PIP_CERT={CERTIFICATES}/ca-certificates.crt",)
        run(*self.command, "config", *(f"--env={each}" for each in settings), container)
        run(*self.command, "commit", "--quiet", "--rm", container, STAND_IN)

    def build(self, target: str) -> None:
        """Builds one stage as the image de-core/TARGET."""
        values = {**versions(), "PYTHON_BUILD_IMAGE": STAND_IN, "PYTHON_RUN_IMAGE": STAND_IN}
        run(
            *self.command, "build", "--isolation", "chroot", "--network", "host",
            "--format", "docker", "--layers", "--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro",
            "--target", target, "--tag", f"de-core/{target}", *build_arguments(values), ROOT,
        )  # fmt: skip

    def size(self, target: str) -> str:
        """Returns an image's size as text."""
        return output(*self.command, "images", "-n", "--format", "{{.Size}}", f"de-core/{target}")


def main(argv: Sequence[str] | None = None) -> None:
    """Builds the requested images and prints their sizes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", default=TARGETS, metavar="TARGET")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "images")
    args = parser.parse_args(argv)
    args.work.mkdir(parents=True, exist_ok=True)
    builder: Docker | Buildah
    if shutil.which("docker") and output("docker", "info", "-f", "{{.ServerVersion}}"):
        builder = Docker()
    elif shutil.which("buildah") and shutil.which("debootstrap"):
        builder = Buildah(args.work / "storage")
        builder.make_base(args.work)
    else:
        sys.exit("Images need Docker, or: apt-get install buildah debootstrap")
    for target in args.targets:
        builder.build(target)
        print(f"de-core/{target}: {builder.size(target)}", flush=True)


if __name__ == "__main__":
    main()
