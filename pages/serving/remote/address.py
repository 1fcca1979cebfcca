"""Resolves an address that a visitor types (``https://``, ``hf://`` or ``s3://``) to a folder and the name of a file."""

import re
from urllib.parse import unquote, urlsplit

from pages.serving.remote.client import Client
from pages.serving.remote.folders import BucketFolder, HubFolder, UrlFolder
from pages.serving.remote.hosts import BUCKETS, HTTPS, HUB, Url
from quantcore.checkpoints import OPENERS, Folder, is_inside
from quantcore.errors import QuantError
from quantcore.wording import short

MAX_CHARACTERS = 4096
_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_HUB = re.compile(
    rf"({_PART}/{_PART})(?:@((?:refs/(?:pr|convert)/)?[A-Za-z0-9._%-]{{1,200}}))?((?:/.*)?)", re.DOTALL
)
_BUCKET = re.compile(r"([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])((?:/.*)?)", re.DOTALL)


def locate(client: Client, address: str) -> tuple[Folder, str | None]:
    """Return the folder of an address, and the name of the file; None if the address is a folder's.

    Raises:
        QuantError: the operator does not allow it, or it is malformed, or there is no such repository.
    """
    scheme, _, rest = address.partition("://")
    scheme, allowed = scheme.lower(), client.hosts.schemes()
    if scheme not in allowed:
        other = f"; it opens {' and '.join(f'{s}://' for s in allowed)}" if allowed else ""
        raise QuantError(
            f"This server does not open {scheme[:20]}:// addresses{other}. Upload the files instead."
        )
    if len(address) > MAX_CHARACTERS:
        raise QuantError(
            f"The address has {len(address):,} characters; give one with at most {MAX_CHARACTERS:,}."
        )
    if scheme == HTTPS:
        return _at_url(client, f"{HTTPS}://{rest}")
    return _in_repository(client, rest) if scheme == HUB else _in_bucket(client, rest)


def _at_url(client: Client, address: str) -> tuple[Folder, str | None]:
    url = Url.parse(address)
    if url.host not in client.hosts.https:
        names = ", ".join(sorted(map(str, client.hosts.https)))
        raise QuantError(
            f"{url.host} is not one of the hosts whose https addresses this server opens ({names}); upload the files instead."
        )
    name = unquote(urlsplit(str(url)).path.rpartition("/")[2])
    if not is_inside(name) or not _is_file(name):
        raise QuantError(
            f"An https folder can't be listed: give the address of a file ({', '.join(OPENERS)}), or of the index of shards "
            "(model.safetensors.index.json)."
        )
    return UrlFolder(client, url, name), name


def _in_repository(client: Client, rest: str) -> tuple[Folder, str | None]:
    match = _HUB.fullmatch(rest)
    if match is None or client.hosts.hub is None:
        raise QuantError(
            f"{short(f'{HUB}://{rest}', 120)} is not of the form {HUB}://owner/name, {HUB}://owner/name@revision or "
            f"{HUB}://owner/name/file; correct it."
        )
    path, name = _split(match[3])
    return HubFolder(client, client.hosts.hub, match[1], unquote(match[2] or "main"), path), name


def _in_bucket(client: Client, rest: str) -> tuple[Folder, str | None]:
    match = _BUCKET.fullmatch(rest)
    if match is None or client.hosts.buckets is None:
        raise QuantError(
            f"{short(f'{BUCKETS}://{rest}', 120)} is not of the form {BUCKETS}://bucket/folder or "
            f"{BUCKETS}://bucket/folder/file; correct it."
        )
    path, name = _split(match[2])
    return BucketFolder(client, client.hosts.buckets, match[1], path), name


def _split(path: str) -> tuple[str, str | None]:
    """Return the folder of a path, and the file if its last part is a file name."""
    path = path.strip("/")
    if path and not is_inside(path):
        raise QuantError(f"{short(path, 120)} is not a path inside the repository or bucket; correct it.")
    folder, _, last = path.rpartition("/")
    return (folder, last) if _is_file(last) else (path, None)


def _is_file(name: str) -> bool:
    return name.lower().endswith((*OPENERS, ".index.json"))
