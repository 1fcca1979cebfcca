"""Folders of checkpoints on the operator's hosts: beside an https address, in a hub's repository, a bucket.

Which one it is says the address that a visitor types: ``https://``, ``hf://`` or ``s3://``.
"""

import re
from abc import abstractmethod
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote, unquote, urlencode, urljoin, urlsplit
from xml.etree import ElementTree

from pages.serving.remote.client import Client, NotServed
from pages.serving.remote.hosts import BUCKETS, HTTPS, HUB, Host, Url
from pages.serving.remote.source import PieceCache, PinnedSource
from quantcore.checkpoints import OPENERS, ByteSource, Folder, NotFound, is_inside
from quantcore.errors import QuantError
from quantcore.tensors import load_json
from quantcore.wording import short

MAX_LIST = 16 * 2**20  # bytes of one page of a list
MAX_PAGES = 20
MAX_NAME = 255  # characters
MAX_FILES = 10_000
MAX_ASKED = 1000  # files that are looked up where there is no list
MAX_CHARACTERS = 4096
_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_HUB = re.compile(
    rf"({_PART}/{_PART})(?:@((?:refs/(?:pr|convert)/)?[A-Za-z0-9._%-]{{1,200}}))?((?:/.*)?)", re.DOTALL
)
_BUCKET = re.compile(r"([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])((?:/.*)?)", re.DOTALL)
_TOO_LONG = (
    f"The list of files has more than {MAX_PAGES} pages; give the address of a folder with fewer files."
)
_NOT_A_LIST = "What the host sent is not a list of files; check the address."


class PinnedFolder(Folder):
    """A folder whose files the client reads."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self.client = client
        self._cache = PieceCache()

    def _source(self, url: Url, name: str, size: int | None = None) -> ByteSource:
        return PinnedSource(self.client, url, name, self.counter, self._cache, size)


class UrlFolder(PinnedFolder):
    """The folder of a file at an https address; it can't be listed."""

    def __init__(self, client: Client, url: Url, name: str) -> None:
        super().__init__(client)
        self._url, self._name = url, name

    def present(self, names: Iterable[str]) -> set[str]:
        """Do as `Folder.present`; each file is requested.

        Raises:
            QuantError: there are more than `MAX_ASKED`, or the host does not answer.
        """
        names = set(names)
        if len(names) > MAX_ASKED:
            raise QuantError(
                f"The index names {len(names):,} files; at most {MAX_ASKED:,} can be looked up on a host."
            )
        with ThreadPoolExecutor(8) as pool:
            return {name for name, there in pool.map(self._look, names) if there}

    def _look(self, name: str) -> tuple[str, bool]:
        try:
            self.open(name)
        except NotServed:
            return name, False
        return name, True

    def _list(self) -> list[str]:
        return list(self.opened)

    def _open(self, name: str) -> ByteSource:
        if name == self._name:
            return self._source(self._url, name)
        return self._source(Url.parse(urljoin(str(self._url), quote(name))), name)


class ListedFolder(PinnedFolder):
    """A folder whose host lists its files with their sizes.

    Args:
        path: of the folder; empty: the root.
    """

    def __init__(self, client: Client, path: str) -> None:
        super().__init__(client)
        self._prefix = f"{path}/" if path else ""
        self._sizes: dict[str, int] = {}

    def _list(self) -> list[str]:
        for path, size in self._files():
            name = path.removeprefix(self._prefix)
            is_here = path == self._prefix + name and "/" not in name and is_inside(name)
            if is_here and len(name) <= MAX_NAME and type(size) is int and size >= 0:
                self._sizes[name] = size
            if len(self._sizes) > MAX_FILES:
                raise QuantError(
                    f"The folder has more than {MAX_FILES:,} files; give the address of one with fewer."
                )
        return list(self._sizes)

    def _open(self, name: str) -> ByteSource:
        if name not in self.names:
            raise NotFound(f"There is no file {short(name, 120)}; check the address.")
        return self._source(self._file(name), name, self._sizes[name])

    @abstractmethod
    def _files(self) -> Iterable[tuple[str, int]]:
        """Yield paths and sizes of the files."""

    @abstractmethod
    def _file(self, name: str) -> Url:
        """Return the address of a file."""


class HubFolder(ListedFolder):
    """A folder of a repository on a hub such as Hugging Face's, at one commit.

    Args:
        repository: ``owner/name``.
        revision: a branch, tag or commit.
        path: of the folder in the repository; empty: its root.

    Raises:
        QuantError: there is no such public repository or revision.
    """

    def __init__(self, client: Client, host: Host, repository: str, revision: str, path: str) -> None:
        super().__init__(client, path)
        self._host, self._repository, self._path = host, repository, path
        url = self._address(f"api/models/{repository}/revision/{quote(revision, safe='')}")
        found = load_json(_text(client.text(url, MAX_LIST).data), "The hub's answer")
        commit = found.get("sha") if isinstance(found, dict) else None
        if not isinstance(commit, str) or not re.fullmatch(r"[0-9a-f]{7,64}", commit):
            raise QuantError(f"{host} does not name the commit of {short(repository, 120)}; try again later.")
        self.commit = commit

    def _address(self, path: str) -> Url:
        return Url.parse(f"https://{self._host}/{path}")

    def _files(self) -> Iterable[tuple[str, int]]:
        where = f"/{quote(self._path)}" if self._path else ""
        url = self._address(f"api/models/{self._repository}/tree/{self.commit}{where}")
        for _ in range(MAX_PAGES):
            page = self.client.text(url, MAX_LIST)
            entries = load_json(_text(page.data), "The list of files")
            for entry in entries if isinstance(entries, list) else []:
                is_file = isinstance(entry, dict) and entry.get("type") == "file"
                if is_file and isinstance(entry.get("path"), str):
                    yield entry["path"], entry.get("size", -1)
            if not page.next:
                return
            url = Url.parse(page.next)
        raise QuantError(_TOO_LONG)

    def _file(self, name: str) -> Url:
        return self._address(f"{self._repository}/resolve/{self.commit}/{quote(self._prefix + name)}")


class BucketFolder(ListedFolder):
    """The files under a prefix of a public bucket, read through the REST interface of S3.

    Args:
        path: the prefix, without the trailing slash; empty: the bucket itself.
    """

    def __init__(self, client: Client, host: Host, bucket: str, path: str) -> None:
        super().__init__(client, path)
        self._base = f"https://{host}/{bucket}"

    def _files(self) -> Iterable[tuple[str, int]]:
        more: dict[str, str] = {}
        for _ in range(MAX_PAGES):
            query = {"list-type": "2", "delimiter": "/", "prefix": self._prefix, **more}
            tree = _xml(self.client.text(Url.parse(f"{self._base}?{urlencode(query)}"), MAX_LIST).data)
            for entry in tree.iterfind("{*}Contents"):
                size = entry.findtext("{*}Size", "")
                yield entry.findtext("{*}Key", ""), int(size) if re.fullmatch(r"\d{1,18}", size) else -1
            token = tree.findtext("{*}NextContinuationToken", "")
            if not token:
                return
            more = {"continuation-token": token}
        raise QuantError(_TOO_LONG)

    def _file(self, name: str) -> Url:
        return Url.parse(f"{self._base}/{quote(self._prefix + name)}")


def _text(data: memoryview) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise QuantError(_NOT_A_LIST) from None


def _xml(data: memoryview) -> ElementTree.Element:
    """Parse a list from S3, which may not define entities: they could grow without bound."""
    text = _text(data)
    if "<!" in text:
        raise QuantError(_NOT_A_LIST)
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError:
        raise QuantError(_NOT_A_LIST) from None


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
            f"{url.host} is not one of the hosts whose https addresses this server opens ({names}); upload "
            "the files instead."
        )
    name = unquote(urlsplit(str(url)).path.rpartition("/")[2])
    if not is_inside(name) or not _is_file(name):
        raise QuantError(
            f"An https folder can't be listed: give the address of a file ({', '.join(OPENERS)}), or of the "
            "index of shards (model.safetensors.index.json)."
        )
    return UrlFolder(client, url, name), name


def _in_repository(client: Client, rest: str) -> tuple[Folder, str | None]:
    match = _HUB.fullmatch(rest)
    if match is None or client.hosts.hub is None:
        raise QuantError(
            f"{short(f'{HUB}://{rest}', 120)} is not of the form {HUB}://owner/name, "
            f"{HUB}://owner/name@revision or {HUB}://owner/name/file; correct it."
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
