"""deploy/ and the Dockerfile agree with each other and with the app; browser/test_replicas.py runs them."""

import re
import shlex
import tomllib
from dataclasses import fields
from typing import Any

import yaml
from grid import for_each
from places import ROOT
from replicas import command

from pages.serving.middleware.limits import MAX_LINK
from pages.serving.middleware.patience import MAX_HEAD
from pages.serving.settings import PREFIX, Settings, read

NGINX = (ROOT / "deploy" / "nginx.conf").read_text("utf-8")
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
COMPOSE = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text("utf-8"))
APPS: dict[str, dict[str, Any]] = {
    name: each for name, each in COMPOSE["services"].items() if each["image"] == "quantscope"
}
REPLICAS = {name: each for name, each in APPS.items() if "replicas" in each["profiles"]}
PROXY = COMPOSE["services"]["proxy"]
CONFIG = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text("utf-8"))["server"]


@for_each("name", APPS)
def test_the_environment_holds_settings(name: str) -> None:
    given = APPS[name]["environment"]
    settings = read(given)
    assert {key for key in given if key.startswith(PREFIX)} <= {
        PREFIX + each.name.upper() for each in fields(Settings)
    }
    assert settings.store == "/store"
    assert settings.replica == (name if name in REPLICAS else "")


def test_the_image_keeps_shared_tensors_where_the_volume_is() -> None:
    (folder,) = re.findall(r"QUANTSCOPE_STORE=(\S+)", DOCKERFILE)
    for app in APPS.values():
        assert app["volumes"] == [f"store:{folder}"]
        assert app["environment"]["QUANTSCOPE_STORE"] == folder
    assert f"install -d -o quantscope {folder}" in DOCKERFILE


@for_each("name", COMPOSE["services"])
def test_containers_may_do_little(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["read_only"] is True
    assert service["tmpfs"].startswith("/tmp:")
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    if name in APPS:
        assert DOCKERFILE.index("\nUSER quantscope") < DOCKERFILE.index("\nCMD ")
    else:
        assert service["user"] == "nginx"


def test_the_proxy_knows_the_replicas() -> None:
    addresses = {name: each["networks"]["inside"]["ipv4_address"] for name, each in REPLICAS.items()}
    assert len(addresses) >= 2
    assert PROXY["extra_hosts"] == [f"{name}:{address}" for name, address in addresses.items()]
    assert set(PROXY["depends_on"]) == set(REPLICAS)
    trusted = {each["environment"]["FORWARDED_ALLOW_IPS"] for each in REPLICAS.values()}
    assert trusted == {PROXY["networks"]["inside"]["ipv4_address"]}
    port = command()[command().index("--port") + 1]
    pools = dict(re.findall(r"upstream (\w+) \{(.*?)\}", NGINX, re.DOTALL))
    servers = {pool: re.findall(r"server (\S+:\d+)", text) for pool, text in pools.items()}
    for_upload = NGINX.partition("map $replica $for_upload {")[2].partition("}")[0]
    alone = dict(re.findall(r"^ +(\w+) (\w+);$", for_upload.replace("default ", ""), re.MULTILINE))
    assert {pool: servers.pop(only) for pool, only in alone.items()} == {
        pool: servers[pool][:1] for pool in alone
    }
    for pool in servers.values():
        assert sorted(pool) == sorted(f"{name}:{port}" for name in REPLICAS)
    by_cookie = dict(re.findall(r'"~\^([\w-]+)\(\\\.\|\$\)" (\w+);', NGINX))
    assert set(by_cookie) == set(REPLICAS)
    assert set(by_cookie.values()) == set(alone)
    for name, pool in by_cookie.items():
        (first,) = re.findall(r"server ([\w-]+):\d+ max_fails", pools[pool])
        assert first == name


def test_the_proxy_lets_through_what_the_app_takes() -> None:
    (upload,) = re.findall(r"client_max_body_size (\d+)m", NGINX)
    assert CONFIG["maxUploadSize"] < int(upload) <= CONFIG["maxUploadSize"] + 1
    (head,) = re.findall(r"large_client_header_buffers 4 (\d+)k;", NGINX)
    assert int(head) << 10 == MAX_HEAD == 2 * MAX_LINK
    ping = int(command()[command().index("--ws-ping-interval") + 1])
    stream = NGINX[NGINX.index("location = /_stcore/stream") :]
    assert int(re.findall(r"proxy_read_timeout (\d+)s", stream)[0]) > 2 * ping


def test_ports_and_health() -> None:
    (port,) = re.findall(r"^EXPOSE (\d+)$", DOCKERFILE, re.MULTILINE)
    (listens,) = re.findall(r"^ +listen (\d+);$", NGINX, re.MULTILINE)
    assert APPS["app"]["ports"] == [f"8501:{port}"]
    assert PROXY["ports"] == [f"8501:{listens}"]
    assert f"127.0.0.1:{port}/_stcore/health" in DOCKERFILE[DOCKERFILE.index("HEALTHCHECK") :]
    assert f"http://127.0.0.1:{listens}/_stcore/health" in PROXY["healthcheck"]["test"]
    assert "./nginx.conf:/etc/nginx/nginx.conf:ro" in PROXY["volumes"]


def test_documented_commands_name_what_there_is() -> None:
    text = (ROOT / "docs" / "hosting.md").read_text("utf-8")
    (composed,) = {line for line in text.splitlines() if line.startswith("docker compose")}
    words = shlex.split(composed)
    assert (ROOT / words[words.index("-f") + 1]).is_file()
    assert words[words.index("--profile") + 1] in REPLICAS["app-1"]["profiles"]
    (single,) = {line for line in text.splitlines() if line.startswith("docker build")}
    assert "-v quantscope:/store" in single
    assert "-p 8501:8501" in single
    assert "--read-only --tmpfs /tmp" in single
