"""What each subject of the course shows, as plain numbers: no widgets, no matplotlib.

A subject has one name everywhere: its numbers are here, its picture in ``helpers/figures/``, its
controls in ``helpers/panels/``.
"""
