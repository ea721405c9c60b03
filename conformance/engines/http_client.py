"""A patient HTTP client: it tries again after 429, 5xx and dropped connections, within a bound, and then says so."""

from __future__ import annotations

import json
import random
import time
from typing import Any
from urllib.parse import urlsplit

import httpx2

TRIES = 6
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 8.0
TIMEOUT = 60.0
"""Seconds without a byte before a request counts as stalled."""


class ServerFailed(RuntimeError):
    """The server could not be reached, or went on refusing. The message names no key."""


class Client:
    """Talks JSON with one server. address: as http://127.0.0.1:8000/v1. key: sent as a bearer token; whatever a server says of
    it is left out of what it answers. Raises ValueError for a key that no header can carry."""

    def __init__(self, address: str, key: str | None = None, *, timeout: float = TIMEOUT, tries: int = TRIES) -> None:
        self._tries = tries
        self.address = address.rstrip("/")
        key = (key or "").strip()
        if not (key.isascii() and key.isprintable()):
            raise ValueError("the key holds characters that no header can carry; set SPECREF_API_KEY again")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        parts = urlsplit(self.address)
        self.shown = f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"
        self._secrets = [secret for secret in (key, parts.username, parts.password, parts.query) if secret]
        limits = httpx2.Limits(max_connections=64, max_keepalive_connections=64)
        self._http = httpx2.Client(headers=headers, timeout=timeout, limits=limits)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The answer to a request. Raises ServerFailed, after the last try or at once for what trying again cannot mend."""
        return self._answer("POST", path, body)

    def get(self, path: str) -> Any:
        """The same for a question without a body."""
        return self._answer("GET", path, None)

    def first_model(self) -> str:
        """The first model that the server lists."""
        listed = self.get("models")
        try:
            return str(listed["data"][0]["id"])
        except (IndexError, KeyError, TypeError):
            raise ServerFailed(f"{self.shown}/models lists no model; name it: --served-model NAME") from None

    def version(self) -> str:
        """What the server says it is, if it says so."""
        try:
            told = json.loads(self._without_secrets(self._http.get(self.address.removesuffix("/v1") + "/version").text))
            return str(told.get("version", "unknown"))[:60]
        except (httpx2.HTTPError, ValueError, AttributeError):
            return "unknown"

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def _answer(self, verb: str, path: str, body: dict[str, Any] | None) -> Any:
        problem = ""
        for number in range(self._tries):
            if number:
                time.sleep(pause(number))
            try:
                response = self._http.request(verb, f"{self.address}/{path}", json=body)
            except httpx2.HTTPError as error:
                problem = self._without_secrets(f"{type(error).__name__}: {error}")
                continue
            if response.status_code == 429 or response.status_code >= 500:
                problem = f"status {response.status_code}"
                continue
            said = self._without_secrets(response.text)
            if response.status_code != 200:
                raise ServerFailed(f"{self.shown}/{path} refused with status {response.status_code}: {said[:200]}")
            try:
                return json.loads(said)
            except ValueError:
                raise ServerFailed(f"{self.shown}/{path} answered something that is not JSON: {said[:80]!r}") from None
        raise ServerFailed(f"{self.shown}/{path} failed {self._tries} times in a row; the last time with {problem}")

    def _without_secrets(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "…")
        return text


def pause(number: int) -> float:
    """Seconds before try `number` (from 1): twice as long each time, within a bound, and never the same for two clients.

    >>> [0.1 <= pause(number) <= 8 for number in (1, 4, 40)]
    [True, True, True]
    """
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(number - 1, 20)) * random.uniform(0.5, 1.0)
