"""Ed25519 key pairs in OpenSSH's formats. Every run makes its own and forgets them at teardown."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeyPair:
    """`private` is an OpenSSH private key file, `public` a line "ssh-ed25519 AAAA..."."""

    private: str
    public: str

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public!r})"  # never the private half, wherever this is printed


def new_key_pair() -> KeyPair:
    """A fresh ed25519 key pair without passphrase."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return KeyPair(private.decode(), public.decode())
