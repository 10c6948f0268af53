"""Where a bucket is: endpoints, regions and the two ways of addressing."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, urlsplit

from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from streaming_core._store._options import Options

__all__ = ["Place", "is_requester_pays", "place_of", "wants_checksums"]

_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_HOST_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_REGION: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_STYLES: Final = ("auto", "path", "virtual")
_ENDPOINTS: Final = ("S3_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")


class Place(NamedTuple):
    """One bucket."""

    bucket: str
    endpoint: str
    """The service's URL; empty for Amazon's own, whose URL depends on the region."""
    region: str
    """Empty if nobody said; then Amazon's answer tells."""
    style: str
    """`path`, `virtual`, or `auto`: by host name on Amazon where the name allows it."""

    def url(self, region: str) -> str:
        """Return what precedes an object's path.

        Example:
            >>> Place("data", "", "", "auto").url("eu-west-1")
            'https://data.s3.eu-west-1.amazonaws.com'
            >>> Place("data", "http://127.0.0.1:9000", "", "auto").url("eu-west-1")
            'http://127.0.0.1:9000/data'
        """
        domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
        endpoint = self.endpoint or f"https://s3.{region}.{domain}"
        by_name = self.style == "virtual" or (
            self.style == "auto" and not self.endpoint and bool(_HOST_NAME.fullmatch(self.bucket))
        )
        parts = urlsplit(endpoint)
        base = parts.path.rstrip("/")
        if by_name:
            return f"{parts.scheme}://{self.bucket}.{parts.netloc}{base}"
        return f"{parts.scheme}://{parts.netloc}{base}/{quote(self.bucket)}"


def place_of(scheme: str, bucket: str, options: Options) -> Place:
    """Return where the bucket of an `s3://` or `r2://` URL is.

    Raises `SchemaError` if nobody says where the service is, or what they say cannot be.
    """
    if _BUCKET.fullmatch(bucket) is None:
        msg = (
            f"{scheme}://… needs the name of a bucket, of letters, digits, '.', '_' and '-', as in "
            f"{scheme}://bucket/folder"
        )
        raise SchemaError(msg)
    style = str(options.get("addressing_style", default="auto"))
    if style not in _STYLES:
        msg = f"addressing_style must be one of {', '.join(_STYLES)}; came {style!r}"
        raise SchemaError(msg)
    if scheme == "r2":
        place = Place(bucket, _r2_endpoint(bucket, options), _region(options) or "auto", style)
    else:
        endpoint = str(options.get("endpoint_url", *_ENDPOINTS, default=""))
        place = Place(bucket, endpoint, _region(options, *_REGIONS), style)
    _check_endpoint(place.endpoint)
    return place


def is_requester_pays(bucket: str, options: Options) -> bool:
    """Tell whether the reader pays for requests to a bucket."""
    given = options.get("requester_pays")
    if given is not None:
        return bool(given)
    listed = os.environ.get("MOSAICML_STREAMING_AWS_REQUESTER_PAYS", "")
    return bucket in [name.strip() for name in listed.split(",")]


def wants_checksums(options: Options) -> bool:
    """Tell whether uploads carry a checksum for the store to verify; they do unless told not to."""
    given = options.get("checksums")
    if given is not None:
        return bool(given)
    return os.environ.get("AWS_REQUEST_CHECKSUM_CALCULATION", "").lower() != "when_required"


def _r2_endpoint(bucket: str, options: Options) -> str:
    endpoint = options.get("endpoint_url", "R2_ENDPOINT_URL", "S3_ENDPOINT_URL")
    if endpoint:
        return str(endpoint)
    account = options.get("account_id", "R2_ACCOUNT_ID", "CLOUDFLARE_ACCOUNT_ID")
    if not account:
        msg = (
            f"r2://{bucket} needs an account: give the storage option account_id or endpoint_url, "
            "or set R2_ACCOUNT_ID or R2_ENDPOINT_URL"
        )
        raise SchemaError(msg)
    return f"https://{account}.r2.cloudflarestorage.com"


def _region(options: Options, *variables: str) -> str:
    region = str(options.get("region", *variables, default=""))
    if region and _REGION.fullmatch(region) is None:
        msg = f"a region is a name such as eu-west-1; came {region!r:.80}"
        raise SchemaError(msg)
    return region


def _check_endpoint(endpoint: str) -> None:
    """Raise `SchemaError` unless it is empty or a URL; it is not shown, as it may hold secrets."""
    if not endpoint:
        return
    try:
        parts = urlsplit(endpoint)
        fine = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    else:
        fine = fine and "@" not in parts.netloc and not parts.query and not parts.fragment
    if not fine:
        msg = (
            "endpoint_url (S3_ENDPOINT_URL, AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL) must be a URL "
            "such as https://host:9000, without user, password and query"
        )
        raise SchemaError(msg)
