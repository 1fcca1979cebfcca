"""Two replicas behind the nginx of deploy/: sessions stay where they are, and go on elsewhere when a replica goes."""

import asyncio
import contextlib
import io
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import numpy as np
import pytest
from replicas import NGINX, Replica, cluster
from visitor import COOKIE, Visitor

from quantcore import tensors

pytestmark = pytest.mark.skipif(NGINX is None, reason="there is no nginx: install it (Debian: nginx-light)")
SESSIONS = 20
GOES_ON = 5.0  # s, from a loss to the page as it was

Cluster = tuple[str, list[Replica]]


@pytest.fixture(scope="module")
def behind_nginx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("replicas")) as started:
        yield started


def link(number: int) -> dict[str, object]:
    """Of each visitor another: every second one's tensor is pasted."""
    if number % 2:
        x = np.random.default_rng(number).normal(size=(4, 6)).astype(np.float32)
        return {"src": "paste", "t": tensors.encode(x), "bits": 3 + number % 5}
    return {"seed": number, "bits": 3 + number % 5, "per": "channel"}


@contextlib.asynccontextmanager
async def visitors(address: str, *links: dict[str, object]) -> AsyncIterator[list[Visitor]]:
    async with contextlib.AsyncExitStack() as stack:
        made = [Visitor(address, **given) for given in links]
        await asyncio.gather(*(stack.enter_async_context(visitor) for visitor in made))
        yield made


async def work(visitor: Visitor, until: asyncio.Event) -> None:
    """Change the bits about once a second, there and back."""
    first = int(str(visitor.link["bits"]))
    while not until.is_set():
        for bits in (first + 1, first):
            await visitor.slide(bits)
            assert visitor.scheme.startswith(f"int{bits} ")
            await asyncio.sleep(0.5)


def test_sessions_uploads_and_media_keep_to_their_replica(behind_nginx: Cluster) -> None:
    address, replicas = behind_nginx

    async def check() -> None:
        file = io.BytesIO()
        np.save(file, np.eye(3, 5, dtype=np.float32))
        links = [link(number) | {"tab": "Export"} for number in range(SESSIONS - 10)] + [
            {"src": "upload"}
        ] * 10
        async with visitors(address, *links) as those:
            assert Counter(visitor.replica for visitor in those) == {
                each.name: SESSIONS // 2 for each in replicas
            }
            *offered, elsewhere = await asyncio.gather(
                *(visitor.download() for visitor in those[:10]), stray(those[0])
            )
            assert {answer.status_code for answer in offered} == {200}
            assert elsewhere.status_code == 404
            uploads = await asyncio.gather(
                *(visitor.upload("x.npy", file.getvalue()) for visitor in those[10:])
            )
            assert {answer.status_code for answer in uploads} == {204}
            assert all(visitor.maps for visitor in those)
            assert len({visitor.maps for visitor in those[10:]}) == 1

    async def stray(visitor: Visitor) -> object:
        """The same request with the other replica's name: this is what the cookie prevents."""
        other = next(each.name for each in replicas if each.name != visitor.replica)
        with Visitor(address).http as http:
            http.cookies.set(COOKIE, other)
            return await asyncio.to_thread(http.get, address + visitor.media)

    asyncio.run(check())


def test_without_cookies_the_address_decides(behind_nginx: Cluster) -> None:
    address, _ = behind_nginx

    async def check() -> None:
        async with Visitor(address) as one:
            sessions = set()
            for _ in range(6):
                one.http.cookies.clear()
                await one.socket.close()
                one.http.get(f"{address}/_stcore/health")
                await one.connect()
                sessions.add(one.replica)
            assert len(sessions) == 1

    asyncio.run(check())


def test_visitors_go_on_when_a_replica_is_killed_and_when_the_other_is_restarted(
    behind_nginx: Cluster,
) -> None:
    address, (first, second) = behind_nginx

    async def check() -> None:
        async with visitors(address, *map(link, range(SESSIONS))) as those:
            shown = [(visitor.scheme, visitor.maps) for visitor in those]
            assert {visitor.replica for visitor in those} == {first.name, second.name}
            await leave(those, first, first.kill)
            first.start()
            await asyncio.to_thread(first.wait)
            await leave(those, second, second.stop)
            for visitor in those:
                await visitor.run()
            assert [(visitor.scheme, visitor.maps) for visitor in those] == shown

    async def leave(those: list[Visitor], gone: Replica, go: object) -> None:
        """Take a replica away while all work; every page is at the other soon."""
        there = [visitor for visitor in those if visitor.replica == gone.name]
        assert there
        until = asyncio.Event()
        working = [asyncio.create_task(work(visitor, until)) for visitor in those]
        await asyncio.sleep(1)
        await asyncio.to_thread(go)  # type: ignore[arg-type]
        await asyncio.sleep(2)
        until.set()
        await asyncio.gather(*working)
        assert not [visitor for visitor in those if visitor.replica == gone.name]
        print(f"{gone.name} gone: {max(visitor.lost for visitor in there):.2f} s")
        assert max(visitor.lost for visitor in there) < GOES_ON

    asyncio.run(check())
