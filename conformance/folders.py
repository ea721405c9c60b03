"""Folders of this machine are left out of whatever is shared: reports, evidence, messages."""

from __future__ import annotations

import re
from typing import Any

_FOLDERS = re.compile(r"(?<![\w/:.…])~?/(?:[^\s/'\":,;()]+/)+")


def without_folders(value: Any) -> Any:
    """The value with the folders of this machine left out of every text: evidence is shared.

    >>> without_folders({"model": "/home/me/models/tiny", "k": 4})
    {'model': '…/tiny', 'k': 4}
    """
    if isinstance(value, dict):
        return {name: without_folders(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(item) for item in value]
    return _FOLDERS.sub("…/", value) if isinstance(value, str) else value
