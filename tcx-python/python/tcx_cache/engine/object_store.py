"""A prefix of an object store, as the place of a cache."""

from __future__ import annotations

import os
from typing import Any

from .. import _native
from ..errors import InvalidSettingsError

#: Options that are no credentials, without the prefix of the provider: others are not pickled.
_PLAIN = frozenset(
    {
        "deadline",
        "parallel",
        "region",
        "default_region",
        "allow_http",
        "virtual_hosted_style_request",
        "skip_signature",
        "request_payer",
        "unsigned_payload",
        "imdsv1_fallback",
        "metadata_endpoint",
        "storage_account_name",
        "account_name",
        "use_emulator",
        "use_azure_cli",
        "timeout",
        "connect_timeout",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "user_agent",
    }
)
#: Options that are URLs, which may contain credentials.
_URLS = frozenset({"endpoint", "endpoint_url"})


class ObjectStore(os.PathLike[str]):
    """A prefix of an object store, and the near tier of this machine. It travels to other processes, also of other machines, by its URL and
    its settings, but not with credentials."""

    def __init__(self, url: str, near_tier: str | None, options: dict[str, Any], spool_bytes: int | None, near_bytes: int | None) -> None:
        self._near_tier, self._options, self._spool_bytes, self._near_bytes = near_tier, options, spool_bytes, near_bytes
        own = [(name, value) for name, value in options.items() if name not in ("deadline", "parallel")]
        self.native = _native.ObjectStore(url, near_tier, own, options.get("deadline"), options.get("parallel"), (near_bytes, spool_bytes))
        self.url = self.native.url

    def __fspath__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"ObjectStore({self.url!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        secret = sorted(name for name, value in self._options.items() if not _is_plain(name, str(value)))
        if secret:
            raise InvalidSettingsError(
                f"a cache at {self.url} cannot be pickled: `storage_options` may contain credentials ({', '.join(secret)}), which do not travel; set them in the "
                "environment of both processes"
            )
        # Without a near tier that was named, the other process uses that of its machine.
        return ObjectStore, (self.url, self._near_tier, self._options, self._spool_bytes, self._near_bytes)


def _is_plain(name: str, value: str) -> bool:
    own = name
    for provider in ("aws_", "google_", "azure_"):
        own = own.removeprefix(provider)
    return own in _PLAIN or own in _URLS and "@" not in value and "?" not in value
