"""Models in files: one safetensors file with a JSON header, written whole, read or refused whole.

`write` and `read` keep a model with its statistics. Other things, checkpoints for instance, are
kept with `write_arrays` and `read_arrays`, and taken apart and rebuilt with `pack` and `unpack`. No
file holds code, and reading one runs none.
"""

from srgp.storage.checkpoint import Checkpoint
from srgp.storage.files import FORMAT, read_arrays, write_arrays
from srgp.storage.saved import Saved, read, write
from srgp.storage.values import pack, unpack

__all__ = [
    "FORMAT",
    "Checkpoint",
    "Saved",
    "pack",
    "read",
    "read_arrays",
    "unpack",
    "write",
    "write_arrays",
]
