"""Whether a loop uses the micro-batches that it was given, in their order and once each."""

import collections
import dataclasses
import itertools

from helpers.audit.uses import Story, Use


def disorder_of(story: Story, in_order: bool) -> dict[str, float]:
    """How many micro-batches are used twice, too early or never; {} where none is.

    Args:
        story: what the loop did.
        in_order: whether ``batches`` has one order, in which what is drawn should come, too.
    """
    keys = [use.key for use in story.uses]
    left_out = {key for key, item in story.items.items() if not item.void} - {*keys}
    for epoch, length in enumerate(story.lengths, 1):
        position = length
        while (epoch, position) in left_out:  # a tail left out is for the windows to tell
            left_out.remove((epoch, position))
            position -= 1
    places = story.items if in_order else {}
    drawn = [(key, item) for key, item in story.drawn.items() if key in places]
    counts = {
        "used twice": len(keys) - len(set(keys)),
        "used before an earlier one": sum(b < a for a, b in itertools.pairwise(keys)),
        "left out": len(left_out),
        "drawn in another order": sum(i.contents != places[key].contents for key, i in drawn),
        "backwards of other data": len(story.strangers),
    }
    return {what: count for what, count in counts.items() if count}


def is_shuffled(story: Story, in_order: bool) -> bool:
    """Whether a library drew the micro-batches out of sight, each as often as the others."""
    counts = collections.Counter(id(use.item) for use in story.uses)
    unseen = not in_order and not story.drawn and not story.strangers
    return unseen and len(set(counts.values())) == 1


def number_anew(story: Story, in_an_epoch: int) -> None:
    """Number the uses as they came, so that windows can be told whatever their order."""
    new: dict[int, Use] = {}
    for n, use in enumerate(story.uses):
        key = (n // in_an_epoch + 1, n % in_an_epoch + 1)
        new[id(use)] = dataclasses.replace(use, key=key)
    story.uses = [new[id(use)] for use in story.uses]
    for taken in (*story.updates, *story.skipped):
        taken.fresh = [new[id(use)] for use in taken.fresh]
        taken.emptied = [new[id(use)] for use in taken.emptied]
    story.items = {use.key: use.item for use in story.uses}
    epochs = [epoch for epoch, _ in story.items]
    story.lengths = [epochs.count(epoch) for epoch in sorted(set(epochs))]
    used = {use.key for taken in story.updates for use in taken.fresh}
    story.lost = {key: "pending" for key in story.items if key not in used}
