"""Lesson 09: what an update costs in time on several ranks, with and without no_sync."""

from collections.abc import Mapping, Sequence

from helpers.figures import DevicesPicture, Table, number
from helpers.figures.devices import WAYS
from helpers.panels.panel import Panel, buttons, labelled
from helpers.subjects.devices import SPEEDS, Update, update

RANKS, STEPS = (2, 4, 8, 16), (1, 2, 4, 8)


class DevicesPanel(Panel):
    """A timeline of compute and communication in one update, with and without no_sync.

    Args:
        buckets: for each bucket size in MiB the bytes of the buckets that were measured with it.

    Controls:
        ranks: how many processes, each with its own link.
        accumulation_steps: micro-batches of each rank in the update.
        bucket_size: one of the measured ones.
        speed: of each link, in Gbit/s.

    After every move: ``updates``, for each way an :class:`helpers.subjects.devices.Update`.
    """

    title = "One update on several ranks"

    def __init__(self, buckets: Mapping[int, Sequence[int]]):
        if not buckets:
            raise ValueError("buckets must hold at least one bucket size, got none")
        self.buckets = {size: tuple(measured) for size, measured in buckets.items()}
        self.ranks = buttons(RANKS, 2)
        self.accumulation_steps = buttons(STEPS, 4)
        self.bucket_size = buttons([(f"{s} MiB", s) for s in self.buckets], max(buckets))
        self.speed = buttons([(f"{s} Gbit/s", s) for s in SPEEDS], 1)
        rows = [
            labelled("ranks", self.ranks),
            labelled("steps k", self.accumulation_steps),
            labelled("bucket size", self.bucket_size),
            labelled("link", self.speed),
        ]
        controls = (self.ranks, self.accumulation_steps, self.bucket_size, self.speed)
        super().__init__(DevicesPicture(), controls, rows)

    def follow(self) -> tuple[Table, Sequence[str]]:
        self.updates = {
            way: update(
                self.buckets[self.bucket_size.value],
                self.ranks.value,
                self.accumulation_steps.value,
                self.speed.value,
                no_sync=way == "with no_sync",
            )
            for way in WAYS
        }
        before, after = self.updates.values()
        share = number(after.end / before.end, 2)
        together = self.ranks.value * self.accumulation_steps.value
        said = f"effective batch: {together} micro-batches; with no_sync in {share} of the time"
        busy = {
            way: [(span.kind, span.micro_batch, span.start, span.end) for span in done.spans]
            for way, done in self.updates.items()
        }
        self.picture.update(busy, said)
        rows = tuple((way, *_cells(done)) for way, done in self.updates.items())
        heading = (
            "one update",
            "all-reduces",
            "MB sent",
            "ms computing",
            "ms waiting",
            "ms in all",
        )
        return Table(heading, rows, said), ()


def _cells(done: Update) -> tuple[str, ...]:
    values = (done.bytes_sent / 1e6, done.computing, done.waiting, done.end)
    return (str(done.all_reduces), *map(number, values))
