"""Files with bytes flipped, cut and overwritten, and everything that can be asked of them."""

import contextlib
import re
import resource
import struct
import time

from quantcore.checkpoints import encode, open_checkpoint
from quantcore.errors import QuantError

EXTREMES = [
    struct.pack("<Q", n)
    for n in (0, 1, 2, 31, 2**31 - 1, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 1, 2**64 - 32)
]
VALUES = [
    b"-1", b"0", b"1", b"3", b"128", b"65536", b"2147483648", b"9223372036854775808", b"1e400", b"NaN", b"null", b"true",
    b"[]", b"{}", b'"x"', b'"../x"', b"[[[[]]]]",
]  # fmt: skip
JSON_VALUE = re.compile(rb'-?\d+|"[^"]{0,80}"|true|false|null')


def damage(content, generator, header):
    """A damaged copy: the header suffers most, where counts and offsets are."""
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
    """JSON with some values replaced by others that parse: what a damaged byte hardly ever gives."""
    for _ in range(generator.choice((1, 1, 2, 4))):
        places = list(JSON_VALUE.finditer(content))
        if places:
            place = generator.choice(places)
            given = generator.choice(VALUES) if generator.random() < 0.7 else generator.choice(places).group()
            content = content[: place.start()] + given + content[place.end() :]
    return content


def damage_safetensors(content, generator):
    """A .safetensors file with values of its JSON replaced, and the length of the header corrected."""
    end = 8 + struct.unpack("<Q", content[:8])[0]
    text = damage_json(content[8:end], generator)
    return struct.pack("<Q", len(text)) + text + content[end:]


def exercise(path, limit=None):
    """Ask everything that can be asked of a checkpoint, of at most ``limit`` weights; return the QuantErrors."""
    sentences = []
    checkpoint = answer(lambda: open_checkpoint(path), sentences)
    if checkpoint is None:
        return sentences
    for tensor in list(checkpoint.tensors.values())[:limit]:
        index = (0,) * len(answer(lambda t=tensor: t.shape, sentences) or ())
        for ask in (
            tensor.read, tensor.codes, tensor.scale, tensor.min, tensor.zero_point, tensor.stored, tensor.notes,
            tensor.quantized, lambda t=tensor: t.read(slice(1, 2)), lambda t=tensor, i=index: t.locate(i),
            lambda t=tensor: encode(t), lambda t=tensor: repr(t),
        ):  # fmt: skip
            answer(ask, sentences)
    sentences += [finding.sentence for finding in checkpoint.findings()]
    return sentences


def answer(ask, sentences):
    """What is returned; None and one more sentence after a QuantError."""
    try:
        return ask()
    except QuantError as error:
        sentences.append(str(error))
        return None


@contextlib.contextmanager
def limited(most_bytes, most_seconds, what):
    """Refuse allocations beyond ``most_bytes`` more than now; check the time of the process, others don't count."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + most_bytes, hard))
    start = time.process_time()
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert time.process_time() - start < most_seconds, what
