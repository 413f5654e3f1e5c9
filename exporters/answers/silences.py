"""Link to Alertmanager's form that silences an incident, with its matchers filled in.

The alerts of an incident have its cluster and its short id as labels: ``streaming.contracts.conditions``. Those of an
incident that was merged into it keep the id of that one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from streaming.escapes import json_text

if TYPE_CHECKING:
    from collections.abc import Sequence

_SPECIAL: Final = re.compile(r"[.+*?()|\[\]{}$]")
_NEEDS_BACKSLASH: Final = re.compile(r"[\\^]")


def silence_link(alertmanager: str, cluster: str, ids: Sequence[str], comment: str = "") -> str | None:
    """Return the address of Alertmanager's form for a new silence; None without the address of Alertmanager.

    Everything is percent-encoded, spaces, too: its page decodes no ``+``.

    Args:
        alertmanager: its address (``export.alertmanager_url``); "" is none.
        cluster: the name that it has now, as in labels.
        ids: short ids of the incident, and of any incident merged into it.
        comment: what the form has as the comment of the silence.
    """
    if not alertmanager:
        return None
    given = {"filter": matchers_of(cluster, ids), **({"comment": comment} if comment else {})}
    query = "&".join(f"{name}={quote(value, safe='', errors='replace')}" for name, value in given.items())
    return f"{alertmanager.rstrip('/')}/#/silences/new?{query}"


def matchers_of(cluster: str, ids: Sequence[str]) -> str:
    """Return the matchers of the alerts of an incident, as Alertmanager and amtool read them.

    >>> matchers_of("prod", ["prod-17"])
    '{cluster="prod", short_id="prod-17"}'
    >>> matchers_of("prod", ["prod-17", "prod-18"])
    '{cluster="prod", short_id=~"prod-17|prod-18"}'
    """
    (first, *merged) = ids
    by_id = f"=~{json_text('|'.join(map(_pattern, ids)))}" if merged else f"={json_text(first)}"
    return f"{{cluster={json_text(cluster)}, short_id{by_id}}}"


def _pattern(name: str) -> str:
    """Return a regular expression of one text, with a backslash only where nothing else does.

    Alertmanager's page before 0.31 takes the text between quotes as it is: it would double each.
    """
    return _NEEDS_BACKSLASH.sub(r"\\\g<0>", _SPECIAL.sub(r"[\g<0>]", name))
