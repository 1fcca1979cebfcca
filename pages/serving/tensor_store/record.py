"""The names of a shared tensor's files, and the record of its content."""

import json
import re
import secrets
from dataclasses import asdict, dataclass

_ADDRESS = re.compile(r"[0-9a-f]{32}")
_CONTENT, _RECORD = ".safetensors", ".json"
MAX_RECORD = 1000  # bytes; a record has about 160
_MOST = 1e18  # bytes or seconds; JSON's numbers may be too large for a float
_CLOCKS_DIFFER = 86400  # seconds


def new_address() -> str:
    """Return 128 random bits as 32 hexadecimal digits."""
    return secrets.token_hex(16)


def is_address(text: str) -> bool:
    """Whether ``text`` has the form that `new_address` returns, and so can't lead out of the folder."""
    return _ADDRESS.fullmatch(text) is not None


def content_name(address: str) -> str:
    """Name of the file with the tensor."""
    return address + _CONTENT


def record_name(address: str) -> str:
    """Name of the file with the record."""
    return address + _RECORD


def address_in(name: str) -> str | None:
    """The address in the name of a content or record file; None for other names."""
    address = name.removesuffix(_CONTENT).removesuffix(_RECORD)
    return address if is_address(address) and address != name else None


@dataclass(frozen=True)
class TensorRecord:
    """What is known about a stored tensor. ``size`` is in bytes; ``shared`` and last ``opened`` in seconds since 1970."""

    sha256: str
    size: int
    shared: float
    opened: float

    def to_bytes(self) -> bytes:
        """Return the record as its file holds it."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "TensorRecord | None":
        """Read a record; None if it is damaged."""
        try:
            record = cls(**json.loads(data))
        except (ValueError, TypeError, RecursionError):
            return None
        numbers = (record.size, record.shared, record.opened)
        if (
            isinstance(record.sha256, str)
            and type(record.size) is int
            and record.size > 0
            and all(type(n) in (int, float) and abs(n) < _MOST for n in numbers)  # NaN is not
        ):
            return record
        return None

    def is_from_the_future(self, now: float) -> bool:
        """Whether its date can't be right, even if the clocks of two machines differ by a day: it would never be too old."""
        return self.shared > now + _CLOCKS_DIFFER

    def last_used(self, now: float) -> float:
        """When the tensor was last opened, as far as is known: a date in the future says nothing."""
        return self.opened if self.opened <= now + _CLOCKS_DIFFER else self.shared
