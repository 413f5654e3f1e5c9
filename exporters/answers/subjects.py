"""Every subject that can be asked about, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporters.answers.brokers import BROKERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from exporters.answers.subject import Subject

SUBJECTS: Final[Mapping[str, Subject]] = {each.name: each for each in (BROKERS,)}
