"""Cross-references of docstrings (``:class:`Run```) as plain code on the API page."""

from __future__ import annotations

import re
from typing import Any


def on_page_content(html: str, **_: Any) -> str:
    return re.sub(r":(?:class|func|meth|mod|attr):<code>~?", "<code>", html)
