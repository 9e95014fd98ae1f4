"""Limits on what a run may spend: when one is reached nothing more is asked, and the run goes on later."""

from __future__ import annotations

import threading
import time

from kerneleval.records import Origin, UsageError


class Caps:
    """What may be spent on asking generators, and how long a run may take; shared by all threads.

    All answers of a run count, those that an earlier, interrupted call of it paid for too. What is under way when a
    limit is reached comes to its end, and is reckoned beforehand as the mean of what came before.

    Args:
        usd: most money, in US dollars; None: any.
        tokens: most tokens, prompt and completion together; None: any.
        hours: longest time from now on, asking and judging; None: any.

    Raises:
        UsageError: a limit that is not above 0.
    """

    def __init__(self, usd: float | None = None, tokens: int | None = None, hours: float | None = None) -> None:
        for name, value in (("--max-usd", usd), ("--max-tokens", tokens), ("--max-hours", hours)):
            if value is not None and not value > 0:
                raise UsageError(f"{name} must be above 0, not {value:g}")
        self._usd, self._tokens, self._hours = usd, tokens, hours
        self._until = None if hours is None else time.monotonic() + hours * 3600
        self._lock = threading.Lock()
        self._spent_usd, self._spent_tokens, self._answers, self._open = 0.0, 0, 0, 0

    def begin(self) -> str:
        """Whether one more may be asked: empty, and it counts as under way until :meth:`end`; else why not."""
        with self._lock:
            if said := self._reached():
                return said
            self._open += 1
            return ""

    def end(self, origin: Origin, *, answered: bool = True) -> None:
        """What one answer cost.

        Args:
            origin: with its tokens and its price.
            answered: whether there was an answer at all.

        Raises:
            UsageError: money is limited, and the price of this answer is not known.
        """
        with self._lock:
            self._open -= 1
            self._answers += answered
            self._spent_usd += origin.money_usd
            self._spent_tokens += origin.tokens_in + origin.tokens_out
        if self._usd is not None and answered and not origin.prices:
            raise UsageError(
                f"--max-usd cannot be kept: what {origin.generator} costs is not known ({origin.model or 'no model'} "
                "is in no price list, or the endpoint does not tell its usage); give it a table [generator.prices], or "
                "limit --max-tokens"
            )

    def out_of_time(self) -> str:
        """Why nothing more is judged; empty: there is time."""
        if self._until is not None and time.monotonic() >= self._until:
            return f"--max-hours {self._hours:g} is over"
        return ""

    def _reached(self) -> str:
        if said := self.out_of_time():
            return said
        ahead = self._open / max(1, self._answers)
        if self._usd is not None and self._spent_usd * (1 + ahead) >= self._usd:
            return f"--max-usd {self._usd:g} is reached: {self._spent_usd:.4f} were spent"
        if self._tokens is not None and self._spent_tokens * (1 + ahead) >= self._tokens:
            return f"--max-tokens {self._tokens} is reached: {self._spent_tokens} were used"
        return ""
