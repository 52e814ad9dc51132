"""The style of the page: for phones first, for light and dark screens, and for paper."""

import base64
import hashlib

from fatura.api.pay_page.html import Html, element

DEFAULT_COLOR = "#0a5c36"
_LEAST_CONTRAST = 4.5
"""The contrast that WCAG 2.2 asks of text (1.4.3)."""
_RULES = """
*,*::before,*::after{box-sizing:border-box}
:root{color-scheme:light dark;--page:#f4f5f7;--card:#fff;--text:#1c2024;--soft:#555d66;--line:#d5d9de;--link:#0b57d0;
--good:#0a5c36;--bad:#a3211b}
@media screen and (prefers-color-scheme:dark){:root{--page:#14171a;--card:#1e2226;--text:#eceff1;--soft:#b3bac2;
--line:#3a4148;--link:#8ab4f8;--good:#7fd3a8;--bad:#ff9a92}}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--text);font:1rem/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
header{background:var(--brand);color:#fff}
header>div,main,footer{max-width:34rem;margin:0 auto}
header>div{display:flex;align-items:center;gap:.75rem;padding:1rem}
header img{max-width:8rem;max-height:3rem;background:#fff;padding:.25rem;border-radius:.25rem}
header p{margin:0;font-weight:600;font-size:1.125rem}
main{padding:1rem}
h1{font-size:1.5rem;line-height:1.25;margin:.5rem 0}
h2{font-size:1.125rem;margin:0 0 .5rem}
p{margin:.5rem 0}
section{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:1rem;margin:1rem 0}
.amount{font-size:2rem;font-weight:700;line-height:1.2;margin:.25rem 0;white-space:nowrap}
.long{font-size:1.25rem}
.soft{color:var(--soft)}
.good{color:var(--good);font-weight:600}
.bad{color:var(--bad);font-weight:600}
.test{border:2px dashed var(--soft);border-radius:.5rem;padding:.5rem .75rem}
table{border-collapse:collapse;width:100%}
caption{text-align:left;font-weight:600;font-size:1.125rem;padding-bottom:.25rem}
th,td{padding:.5rem 0;border-top:1px solid var(--line);vertical-align:top}
th{text-align:left;font-weight:400}
th small{display:block;color:var(--soft)}
header p,th,small{unicode-bidi:plaintext}
td{text-align:right;white-space:nowrap;padding-left:1rem;font-variant-numeric:tabular-nums}
thead th{border:0;color:var(--soft);font-size:.875rem}
thead th:last-child{text-align:right}
tfoot th,tfoot td{font-weight:600}
label{display:block;font-weight:600;margin-top:.75rem}
textarea{display:block;width:100%;margin:.25rem 0;padding:.75rem;border:1px solid var(--soft);border-radius:.5rem;
background:var(--page);color:var(--text);font:1rem/1.4 ui-monospace,monospace;overflow-wrap:anywhere;resize:vertical;
field-sizing:content;max-height:20rem}
#pix-code{word-break:break-all}
.qr{max-width:16rem;margin:1rem auto;background:#fff;border-radius:.5rem;line-height:0}
.qr svg{width:100%;height:auto}
a{color:var(--link)}
main a,footer a{display:inline-block;padding:.5rem 0}
footer{padding:0 1rem 2rem;font-size:.875rem}
main .button,button{display:block;width:100%;min-height:3rem;padding:.75rem 1rem;border:2px solid #fff;
border-radius:.5rem;background:var(--brand);color:#fff;font:600 1rem/1.4 system-ui,sans-serif;text-align:center;
text-decoration:none;cursor:pointer}
a:focus-visible,button:focus-visible,textarea:focus-visible{outline:3px solid var(--link);outline-offset:2px}
@media print{:root{color-scheme:light;--page:#fff;--text:#000;--soft:#000;--link:#000}
header,main .button{background:#fff;color:#000}header{border-bottom:1px solid #000}
main .button,section{border-color:#000}footer,form{display:none}textarea{max-height:none}section,tr{break-inside:avoid}}
"""


def contrast_with_white(color: str) -> float:
    """Return the contrast of a color such as `#0b6bcb` with white, as WCAG 2.2 defines it: from 1 to 21."""
    red, green, blue = (_linear(int(color[place : place + 2], 16) / 255) for place in (1, 3, 5))
    return 1.05 / (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4


def brand_color(color: str | None) -> str:
    """Return the merchant's color if white text on it can be read well, else the default."""
    if color is not None and contrast_with_white(color) >= _LEAST_CONTRAST:
        return color
    return DEFAULT_COLOR


def style(color: str | None) -> tuple[Html, str]:
    """Return the `style` element of a page, and the source that allows it in the page's Content-Security-Policy."""
    rules = f":root{{--brand:{brand_color(color)}}}{_RULES}"
    digest = base64.b64encode(hashlib.sha256(rules.encode()).digest()).decode()
    return element("style", Html(rules)), f"'sha256-{digest}'"
