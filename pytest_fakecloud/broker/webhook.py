"""Select the custom headers of a webhook request, which become message headers.

The vendor's documentation only says "custom headers". Decided here: permanent HTTP field names of
the IANA registry, hop-by-hop fields, and headers that browsers and proxies add are not custom and
are dropped. Names are compared without regard to case.
"""

from __future__ import annotations

from collections.abc import Iterable

from .model import Header

STANDARD = frozenset(
    """
    a-im accept accept-additions accept-ch accept-datetime accept-encoding accept-features
    accept-language accept-patch accept-post accept-query accept-ranges accept-signature
    access-control access-control-allow-credentials access-control-allow-headers
    access-control-allow-methods access-control-allow-origin access-control-expose-headers
    access-control-max-age access-control-request-headers access-control-request-method age
    allow alpn alt-svc alt-used alternates apply-to-redirect-ref authentication-control
    authentication-info authorization available-dictionary cache-control
    cache-group-invalidation cache-groups cache-status cal-managed-id caldav-timezones
    capsule-protocol cdn-cache-control cdn-loop cert-not-after cert-not-before clear-site-data
    client-cert client-cert-chain close concealed-auth-export connection content-digest
    content-disposition content-encoding content-language content-length content-location
    content-md5 content-range content-security-policy content-security-policy-report-only
    content-type cookie cross-origin-embedder-policy cross-origin-embedder-policy-report-only
    cross-origin-opener-policy cross-origin-opener-policy-report-only
    cross-origin-resource-policy dasl date dav delta-base deprecation depth destination
    detached-jws dictionary-id dpop dpop-nonce early-data etag expect expires forwarded from
    hobareg host if if-match if-modified-since if-none-match if-range if-schedule-tag-match
    if-unmodified-since im include-referred-token-binding-id incremental keep-alive label
    last-event-id last-modified link link-template location lock-token max-forwards
    memento-datetime meter mime-version negotiate nel odata-entityid odata-isolation
    odata-maxversion odata-version ordering-type origin origin-agent-cluster oscore
    oslc-core-version overwrite ping-from ping-to position prefer preference-applied priority
    proxy-authenticate proxy-authentication-info proxy-authorization proxy-connection
    proxy-status public-key-pins public-key-pins-report-only range redirect-ref referer
    referrer-policy replay-nonce reporting-endpoints repr-digest retry-after schedule-reply
    schedule-tag server server-timing set-cookie set-cookie2 signature signature-input slug
    soapaction status-uri strict-transport-security sunset te timeout topic traceparent
    tracestate trailer transfer-encoding ttl unencoded-digest upgrade urgency use-as-dictionary
    user-agent variant-vary vary via want-content-digest want-repr-digest want-unencoded-digest
    warning www-authenticate x-content-type-options x-frame-options x-real-ip
    """.split()  # noqa: SIM905
)
"""Standard field names, in lower case, as of November 2026. They do not become message
headers. Source: https://www.iana.org/assignments/http-fields
"""

_PREFIXES = ("sec-", "x-forwarded-")


def message_headers(headers: Iterable[tuple[str, str]]) -> tuple[Header, ...]:
    """Return the custom headers of a request, with their order, spelling and repetitions."""
    return tuple(
        Header(_text(name), _text(value))
        for name, value in headers
        if not (name.lower() in STANDARD or name.lower().startswith(_PREFIXES))
    )


def _text(raw: str) -> str:
    """Decode a header as UTF-8, which clients usually send, although it was read as Latin-1."""
    try:
        return raw.encode("latin-1").decode("utf-8")
    except (UnicodeEncodeError, UnicodeDecodeError):
        return raw
