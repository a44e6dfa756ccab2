"""How non-IID is a federation, and what to do about it: `accord diagnose`, `accord.diagnose`.

A finding is a file: a function from the data to a `Finding` with numbers, how grave it is, a sentence and what a
picture needs. `chance` says what is more than chance, `gathered` which samples are looked at, `features` how inputs are
compared; `suggestion` reads `rules.toml`; `diagnosis` puts all of it together, `page` makes a file of it.
"""

from accord.diagnosis.diagnosis import Diagnosis, looked_over
from accord.diagnosis.finding import Finding

__all__ = ["Diagnosis", "Finding", "looked_over"]
