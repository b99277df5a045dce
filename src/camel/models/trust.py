"""Which hosts may get secrets, if only a file names the host.

The one decision to know: an address that the user gives (`--base-url`, OPENAI_BASE_URL, Python code) is consent. A file may
have another author, so a key goes to the known hosts of its provider, to this machine, and to hosts that the user trusts.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from camel.core.errors import InputError
from camel.core.toml import convert_table, read_table
from camel.models.dialects import is_key_of
from camel.models.endpoint import is_loopback

_chosen: set[str] = set()
"""Hosts of this process's command line."""


class UserSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The user's settings file."""

    trust_hosts: tuple[str, ...] = ()


def choose_hosts(hosts: Iterable[str] | None) -> None:
    """Trust exactly these hosts, and those in the user's settings, in this process."""
    _chosen.clear()
    _chosen.update(host.lower() for host in hosts or ())


def choose_urls(urls: Iterable[str]) -> None:
    """Also trust the hosts of addresses that the user has typed."""
    _chosen.update(host for url in urls if (host := host_of(url)))


def settings_file() -> Path:
    """Return the path of the user's settings."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "camel" / "settings.toml"


def trusted_hosts() -> tuple[str, ...]:
    """Return the hosts of `--trust-host` and of `trust_hosts` in the user's settings."""
    path = settings_file()
    settings = convert_table(read_table(path), UserSettings, path) if path.is_file() else UserSettings()
    return tuple(sorted({*_chosen, *(one.lower() for one in settings.trust_hosts)}))


def host_of(url: str) -> str:
    """Return the host in a URL, in lower case."""
    return urlsplit(url.removeprefix("dns+")).hostname or ""


def check_host(url: str, variables: Iterable[str], trusted: Collection[str]) -> None:
    """Raise an `InputError` unless `url`, which a file names, may get the values of these environment variables."""
    host = host_of(url)
    if is_loopback(host) or any(host == one or host.endswith(f".{one}") for one in trusted):
        return
    how = f'--trust-host {host} allows it, or trust_hosts = ["{host}"] in {settings_file()}'
    if urlsplit(url).scheme != "https":
        raise InputError(f"a file names the host {host} over plain http, which others can read: {how}")
    for variable in sorted(variables):
        if not is_key_of(variable, url):
            raise InputError(f"a file names the host {host}, which would get {variable}: {how}")
