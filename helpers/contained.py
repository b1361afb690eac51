"""Running a training library so that it changes nothing outside: files, settings, random states."""

import gc
import logging
import os
import random
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from helpers.device import same_on_every_device


@contextmanager
def contained() -> Iterator[Path]:
    """An empty folder for files; whatever a library changes or writes inside is put back after it.

    Put back are environment variables, warning filters, random states, torch's settings of
    :func:`helpers.device.same_on_every_device`, and Accelerate's shared state. Inside, log messages
    below errors are not shown, no hub is asked, and Keras is one on torch and the CPU.
    """
    environment, states = dict(os.environ), _shared_states()
    random_state, numpy_state = random.getstate(), np.random.get_state()
    warning_format, silenced = warnings.formatwarning, logging.root.manager.disable
    with (
        tempfile.TemporaryDirectory() as folder,
        warnings.catch_warnings(),
        same_on_every_device(),
    ):
        logging.disable(logging.WARNING)
        warnings.simplefilter("ignore")
        os.environ.update(
            KERAS_BACKEND="torch",
            KERAS_TORCH_DEVICE="cpu",
            KERAS_HOME=folder,  # else importing it writes a file into the home folder
            HF_HUB_OFFLINE="1",
            TORCHINDUCTOR_CACHE_DIR=folder,
        )
        for state, _ in states:
            state.clear()
        try:
            yield Path(folder)
        finally:
            for state, _ in _shared_states():
                state.clear()
            for state, before in states:
                state.update(before)
            os.environ.clear()
            os.environ.update(environment)
            random.setstate(random_state)
            np.random.set_state(numpy_state)
            warnings.formatwarning = warning_format
            logging.disable(silenced)


def _shared_states() -> list[tuple[dict, dict]]:
    """What all of Accelerate's objects share, if it is in use, and a copy of each."""
    if "accelerate" not in sys.modules:
        return []
    from accelerate.state import AcceleratorState, GradientState, PartialState

    kinds = (AcceleratorState, GradientState, PartialState)
    return [(kind._shared_state, dict(kind._shared_state)) for kind in kinds]


@contextmanager
def older_objects_kept() -> Iterator[None]:
    """Garbage collection looks only at what is made inside, so that it takes no half second."""
    if gc.get_freeze_count():  # the caller's; thawing would undo it
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
