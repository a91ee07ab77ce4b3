"""Trust in artifacts: digests, signatures, native code.

A digest is the SHA-256 of the whole file, as sha256sum prints it. A signature is a small JSON file beside the
artifact, NAME.sig: the digest, and an Ed25519 signature of it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..calls.checks import check_flag, check_path
from ..settings import settings
from ..vm.codes import Verify
from ..vm.errors import ArgumentError, ArtifactError, FileError
from ..vm.files import MAX_TEXT_BYTES, read_regular, replacing
from ..vm.held_file import HeldFile
from ..vm.load_options import LoadOptions, verify_code
from ..vm.schema import Object, Text, decode

SIGNATURE = Object({"sha256": Text(64), "ed25519": Text(128)})  # the file beside an artifact
_SIGNED = b"shapevm artifact, SHA-256 "  # the signed message is this, followed by the digest in hexadecimal
KeyFile = str | os.PathLike[str] | bytes


@dataclass(frozen=True)
class Trust:
    """How far an artifact is trusted: arguments of `shapevm.load`."""

    verify: Verify | None = None
    copy: bool | None = None
    digest: str | None = None
    trust: KeyFile | None = None
    native_code: bool | None = None

    def of(self, options: LoadOptions, path: Path) -> LoadOptions:
        """Return the runtime's options for the artifact at `path`. Raises ArgumentError for an invalid
        argument, ArtifactError and FileError like `signed_digest`.
        """
        verify_code(self.verify or "auto")
        check_flag("copy", self.copy)
        check_flag("native_code", self.native_code)
        digest = parse_digest(self.digest) if self.digest is not None else None
        if self.trust is not None:
            if not isinstance(self.trust, bytes):
                check_path("trust", self.trust, " of an Ed25519 public key in PEM, or its bytes")
            signed = signed_digest(path, self.trust)
            if digest not in (None, signed):
                raise ArtifactError(f"{path}: its signature is for another digest than {self.digest}")
            digest = signed
        native = settings.native_code if self.native_code is None else self.native_code
        reading = replace(options.reading, verify=self.verify or "auto", copy=self.copy, sha256=digest)
        return replace(options, reading=reading, native_code=native)


def parse_digest(text: str) -> bytes:
    """Return the 32 bytes of a SHA-256 in hexadecimal. Raises ArgumentError for anything else."""
    try:
        digest = bytes.fromhex(text.strip()) if isinstance(text, str) else b""
    except ValueError:
        digest = b""
    if len(digest) != 32:
        raise ArgumentError(f"digest {text!r} is no SHA-256: it must be 64 hexadecimal digits")
    return digest


def digest(path: str | os.PathLike[str]) -> str:
    """Return a file's SHA-256 in hexadecimal. Raises FileError if it cannot be read."""
    return HeldFile.open(path).sha256().hex()


# Signatures -----------------------------------------------------------------------------------------


def signature_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of an artifact's signature."""
    return Path(f"{os.fspath(path)}.sig")


def sign(path: str | os.PathLike[str], key: KeyFile) -> Path:
    """Sign an artifact with an Ed25519 private key, a PEM file or its bytes, and return the signature's path.

    Raises FileError for files that cannot be read or written, ArgumentError for another key.
    """
    _check_package()
    private, found = _key(key, private=True), digest(path)
    text = json.dumps({"sha256": found, "ed25519": private.sign(_SIGNED + found.encode()).hex()})
    place = signature_path(path)
    try:
        with replacing(place) as file:
            file.write(text.encode() + b"\n")
    except OSError as error:
        raise FileError(f"{place} cannot be written: {error.strerror or error}") from None
    return place


def signed_digest(path: str | os.PathLike[str], key: KeyFile) -> bytes:
    """Return the digest in the signature beside `path`, which the owner of the Ed25519 public key `key` (a
    PEM file or its bytes) made. The file's own digest is not checked.

    Raises FileError without a signature, ArtifactError for one that is not the key's, ArgumentError for
    another kind of key.
    """
    _check_package()
    from cryptography.exceptions import InvalidSignature

    public: Any = _key(key, private=False)
    place = signature_path(path)
    try:
        found = decode(read_regular(place), SIGNATURE, str(place))
        digest_text, signature = found["sha256"], bytes.fromhex(found["ed25519"])
    except OSError as error:
        raise FileError(
            f"{place}: the artifact's signature cannot be read: {error.strerror or error}; make it with "
            "shapevm sign"
        ) from None
    except ValueError:
        raise ArtifactError(f"{place} is no signature; make it with shapevm sign") from None
    try:
        public.verify(signature, _SIGNED + digest_text.encode())
    except InvalidSignature:
        raise ArtifactError(f"{place}: the signature is not by the trusted key") from None
    return parse_digest(digest_text)


def verify(path: str | os.PathLike[str], key: KeyFile) -> str:
    """Return the digest of an artifact that the owner of `key` signed. Raises the errors of `signed_digest`,
    and ArtifactError for a file that was changed since.
    """
    found, signed = digest(path), signed_digest(path, key).hex()
    if found != signed:
        raise ArtifactError(f"{os.fspath(path)}: its SHA-256 is {found}; {signed} was signed")
    return found


def check_artifact(path: str | os.PathLike[str], key: KeyFile | None, wanted: str | None) -> str:
    """Return the digest of an artifact that is valid and, if these are given, signed with `key` and has the
    digest `wanted`. Raises the errors of `verify`, and ArtifactError or VerifyError for an invalid artifact.
    """
    from ..vm.artifact import read
    from ..vm.verify import verify as verify_program

    held = HeldFile.open(path)
    found = verify(path, key) if key is not None else digest(path)
    if wanted is not None and parse_digest(wanted).hex() != found:
        raise ArtifactError(f"{os.fspath(path)}: its SHA-256 is {found}, not {wanted}")
    verify_program(read(path))
    held.check()
    return found


def _check_package() -> None:
    from ..compiler.packages import MissingPackage

    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise MissingPackage("signatures need cryptography: install shapevm[sign]") from None


def _start_of(path: str | os.PathLike[str]) -> bytes:
    """Return the first bytes of a file, which may be a pipe: more than any key has."""
    with open(path, "rb") as file:
        return file.read(MAX_TEXT_BYTES)


def _key(key: KeyFile, private: bool) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

    what = "the key" if isinstance(key, bytes) else os.fspath(key)
    try:
        text = key if isinstance(key, bytes) else _start_of(key)
        made = load_pem_private_key(text, None) if private else load_pem_public_key(text)
    except OSError as error:
        raise FileError(f"{what} cannot be read: {error.strerror or error}") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        made = None
    wanted = Ed25519PrivateKey if private else Ed25519PublicKey
    if not isinstance(made, wanted):
        kind = "private" if private else "public"
        raise ArgumentError(f"{what} is no Ed25519 {kind} key in PEM without a password")
    return made
