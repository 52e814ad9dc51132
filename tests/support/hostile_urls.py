"""URLs that lead to denied addresses: directly, in unusual spellings, or through DNS names."""

from collections.abc import Iterator
from ipaddress import IPv4Address

TARGETS = (
    "127.0.0.1",  # this host
    "0.0.0.0",  # noqa: S104 - connects to this host
    "10.0.0.1",
    "172.16.0.1",
    "192.168.0.1",
    "169.254.169.254",  # metadata service of most clouds
    "100.100.100.200",  # metadata service of one cloud
    "168.63.129.16",  # internal services of one cloud
)
_FULL_WIDTH = str.maketrans("0123456789", "０１２３４５６７８９")  # noqa: RUF001 - full-width digits on purpose
_CIRCLED = str.maketrans("0123456789", "⓪①②③④⑤⑥⑦⑧⑨")
_IDEOGRAPHIC = str.maketrans(".", "。")
_HALF_WIDTH = str.maketrans(".", "｡")


def spellings(address: str) -> Iterator[str]:
    """Yield the spellings of an IPv4 address that some URL parsers accept."""
    number = int(IPv4Address(address))
    a, b, c, d = IPv4Address(address).packed
    pairs = f"{a:02x}{b:02x}:{c:02x}{d:02x}"
    yield from (
        address,
        f"{address}.",
        str(number),
        f"{number}.",
        hex(number),
        hex(number).upper(),
        oct(number),
    )
    yield from (f"0{number:o}", f"{a}.{b}.{c * 256 + d}", f"{a}.{(b << 16) + (c << 8) + d}")
    yield from (f"0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}", f"0{a:o}.0{b:o}.0{c:o}.0{d:o}", f"0x{a:x}.{b}.0{c:o}.{d}")
    yield from (f"{a:04d}.{b:04d}.{c:04d}.{d:04d}", f"{a + 256}.{b}.{c}.{d}", f"{number + 2**32}")
    yield from (address.translate(_FULL_WIDTH), address.translate(_CIRCLED), address.translate(_IDEOGRAPHIC))
    yield from (address.translate(_HALF_WIDTH), address.replace(".", "%2e"), address.replace("1", "%31"))
    yield from (f"[::ffff:{address}]", f"[::ffff:{pairs}]", f"[0:0:0:0:0:ffff:{pairs}]", f"[::{address}]")
    yield from (f"[::{pairs}]", f"[64:ff9b::{address}]", f"[64:ff9b::{pairs}]", f"[64:ff9b:1::{pairs}]")
    yield from (f"[2002:{pairs}::]", f"[2002:{pairs}::1]", f"[2001:0:{pairs}::]", f"[::ffff:0:{address}]")


NAMES = (
    *(
        "localhost",
        "LOCALHOST",
        "localhost.",
        "a.localhost",
        "localhost.localdomain.local",
        "[::1]",
        "[::]",
        "[0::1]",
    ),
    *(
        "[fe80::1]",
        "[fe80::1%25eth0]",
        "[fc00::1]",
        "[fd00:ec2::254]",
        "[ff02::1]",
        "[fec0::1]",
        "[::1",
        "::1",
    ),
    *(
        "metadata",
        "metadata.google.internal",
        "instance-data",
        "kubernetes.default.svc.local",
        "db",
        "printer.local",
    ),
    *("host.docker.internal", "1.0.0.127.in-addr.arpa", "home.arpa", "router.home.arpa", "0", "0x0", "00"),
    *(
        "127.1",
        "127.0.1",
        "1.2.3.4.5",
        "256.256.256.256",
        "0x7f.1",
        "127.0.0.1.0x1",
        "merchant.example.127",
        "-",
        ".",
    ),
)
DETOURS = (
    "https://merchant.example@{target}/",
    "https://merchant.example:443@{target}/",
    "https://merchant.example%40{target}/",
    "https://{target}\\@merchant.example/",
    "https://merchant.example\\.{target}/",
    "https://{target}#@merchant.example/",
    "https://merchant.example#@{target}/",
    "https://{target} .merchant.example/",
    "https://merchant.example\t@{target}/",
    "https://{target}\t/",
    "https://{target}\r\nHost:merchant.example/",
    "https:\\\\{target}\\",
    "https:///{target}/",
    "https:{target}/",
    "//{target}/",
    "http://{target}/",
    "HTTP://{target}/",
    "http:\\\\{target}/",
    "ftp://{target}/",
    "gopher://{target}:70/_GET",
    "file://{target}/etc/passwd",
    "jar:https://{target}!/",
    "url:https://{target}/",
    "https://merchant.example,{target}/",
    "https://[{target}]/",
    "https://{target}:443:443/",
    "https://{target}:0/",
    "https://{target}:65536/",
    "https://{target}:-1/",
    " https://{target}/",
)


def hostile_urls(port: int) -> list[str]:
    """Return all hostile URLs, without duplicates. A server of the test listens on `port` to detect calls."""
    hosts = [spelled for target in TARGETS for spelled in spellings(target)] + list(NAMES)
    found = [f"https://{host}:{port}/price" for host in hosts]
    found += [f"https://{host}/" for host in hosts]
    found += [detour.format(target=f"127.0.0.1:{port}") for detour in DETOURS]
    found += [detour.format(target=target) for detour in DETOURS for target in TARGETS[:2]]
    return list(dict.fromkeys(found))


PRIVATE_ADDRESSES = (
    "0.0.0.0",  # noqa: S104 - no server listens on it
    *("0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "127.0.0.1"),
    *("127.255.255.254", "168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255"),
    *("192.0.0.1", "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.19.255.255"),
    *("198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "::127.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::a9fe:a9fe"),
    *("64:ff9b:1::7f00:1", "100::1", "2001::1", "2001:0:7f00:1::", "2001:db8::1", "2002:7f00:1::", "3fff::1"),
    *("fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "4000::1", "5f00::1"),
)
PUBLIC_ADDRESSES = (
    *("1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255"),
    *("128.0.0.0", "168.63.129.15", "168.63.129.17", "169.253.255.255", "169.255.0.0", "172.15.255.255"),
    *("172.32.0.0", "192.0.1.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0"),
    *("223.255.255.255", "2001:200::1", "2001:4860:4860::8888", "2003::1", "2606:4700::1111"),
    *("2a00:1450::1", "3ffe::1"),
)
