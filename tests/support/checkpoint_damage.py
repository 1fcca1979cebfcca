"""Corrupt files: bits flipped, bytes deleted or overwritten; and every question a checkpoint can be asked."""

import contextlib
import re
import resource
import struct

from bounded import in_seconds

from quantcore.checkpoints import encode, open_checkpoint
from quantcore.errors import QuantError

EXTREMES = [
    struct.pack("<Q", n)
    for n in (0, 1, 2, 31, 2**31 - 1, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 1, 2**64 - 32)
]
VALUES = [
    b"-1", b"0", b"1", b"3", b"128", b"65536", b"2147483648", b"9223372036854775808", b"1e400", b"NaN",
    b"null", b"true", b"[]", b"{}", b'"x"', b'"../x"', b"[[[[]]]]",
]  # fmt: skip
JSON_VALUE = re.compile(rb'-?\d+|"[^"]{0,80}"|true|false|null')


def damage(content, generator, header):
    """A corrupted copy; most changes are in the header, which has the counts and offsets."""
    damaged = bytearray(content)
    reach = len(content) if generator.random() < 0.2 else header
    for _ in range(generator.choice((1, 1, 2, 5))):
        what, at = generator.random(), generator.randrange(max(1, min(reach, len(damaged))))
        if what < 0.4:
            damaged[at] ^= 1 << generator.randrange(8)
        elif what < 0.7:
            damaged[at : at + 8] = generator.choice(EXTREMES)
        elif what < 0.8:
            damaged[at : at + 4] = generator.choice(EXTREMES)[:4]
        elif what < 0.9:
            del damaged[at : at + generator.randrange(1, 40)]
        else:
            del damaged[generator.randrange(len(damaged)) :]
        damaged = damaged or bytearray(1)
    return bytes(damaged)


def damage_json(content, generator):
    """JSON with some values replaced by others that still parse, which random bytes hardly ever do."""
    for _ in range(generator.choice((1, 1, 2, 4))):
        places = list(JSON_VALUE.finditer(content))
        if places:
            place = generator.choice(places)
            given = generator.choice(VALUES) if generator.random() < 0.7 else generator.choice(places).group()
            content = content[: place.start()] + given + content[place.end() :]
    return content


def damage_safetensors(content, generator):
    """A .safetensors file with some values of its JSON replaced and the header length adjusted."""
    end = 8 + struct.unpack("<Q", content[:8])[0]
    text = damage_json(content[8:end], generator)
    return struct.pack("<Q", len(text)) + text + content[end:]


def exercise(path, limit=None):
    """Call everything a checkpoint offers, on at most ``limit`` weights; return the messages of QuantErrors
    and findings."""
    sentences = []
    checkpoint = answer(lambda: open_checkpoint(path), sentences)
    if checkpoint is None:
        return sentences
    for tensor in list(checkpoint.tensors.values())[:limit]:
        index = (0,) * len(answer(lambda t=tensor: t.shape, sentences) or ())
        for ask in (
            tensor.read, tensor.codes, tensor.scale, tensor.min, tensor.zero_point, tensor.stored,
            tensor.notes, tensor.quantized, lambda t=tensor: t.read(slice(1, 2)),
            lambda t=tensor, i=index: t.locate(i), lambda t=tensor: encode(t), lambda t=tensor: repr(t),
        ):  # fmt: skip
            answer(ask, sentences)
    sentences += [finding.sentence for finding in checkpoint.findings()]
    return sentences


def answer(ask, sentences):
    """The result of ``ask``; after a QuantError None, with its message appended to ``sentences``."""
    try:
        return ask()
    except QuantError as error:
        sentences.append(str(error))
        return None


@contextlib.contextmanager
def limited(most_bytes, most_seconds, what):
    """Allow ``most_bytes`` more memory than is used now, and ``most_seconds`` of this thread's CPU time."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + most_bytes, hard))
    try:
        with in_seconds(most_seconds, what):
            yield
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
