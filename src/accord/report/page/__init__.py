"""Runs as one page: a file that can be sent, or served while they go on.

`history` reads a run's rounds thinly, `contents` makes plain values of runs, `document` makes a file of them.
What the page looks like and does is in `assets/`.
"""

from accord.report.page.contents import contents
from accord.report.page.document import document, write_report

__all__ = ["contents", "document", "write_report"]
