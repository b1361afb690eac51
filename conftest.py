"""What holds for every test and every notebook, from whatever folder pytest is called."""

import os
from pathlib import Path

import matplotlib
import matplotlib.font_manager  # a font cache built inside a notebook would be stderr
from hypothesis import settings

# The first example pays for imports, so a deadline would fail on a busy machine only.
settings.register_profile("lessons", deadline=None)
settings.load_profile("lessons")

ROOT = Path(__file__).parent


def pytest_configure(config):
    if config.option.nbval_sanitize_with is None:
        config.option.nbval_sanitize_with = str(ROOT / "tests" / "nbval_sanitize.cfg")
    # A kernel inherits it and would then draw nothing where JupyterLab draws inline.
    os.environ.pop("MPLBACKEND", None)
    matplotlib.use("agg")
