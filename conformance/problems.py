"""What goes wrong outside of the judge: on the user's side, and on the engine's."""

from __future__ import annotations

from conformance.folders import without_folders


class UsageProblem(Exception):
    """Wrong settings, or models that cannot be used; found before anything is sampled.

    One line that says what is wrong and what to do. The command ends with exit code 2.
    """


class EngineFailed(Exception):
    """The engine crashed, hung, answered nonsense, refused, or cannot be had here.

    kind: "crash", "hang", "memory", "nonsense", "unsupported" or "not run".

    The message goes into reports that are shared, so folders of this machine are left out of it; the engine's log has them.

    >>> str(EngineFailed("crash", "OSError: no file '/home/me/models/tiny/config.json' (see https://example.org/help/me)"))
    "OSError: no file '…/config.json' (see https://example.org/help/me)"
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(without_folders(message))
        self.kind = kind
