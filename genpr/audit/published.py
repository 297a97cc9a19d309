"""The published matrix, cell by cell, to be compared with what the checks say of genpr's metrics.

References:
    Räisä, van Breugel, van der Schaar 2025, "Position: All Current Generative Fidelity and Diversity Metrics are
    Flawed", ICML; the tables printed by its public code (vanderschaarlab/position-fidelity-diversity-metrics-flawed).
"""

from __future__ import annotations

from types import MappingProxyType

from genpr.audit.demands import Mark

SOURCE = "Räisä, van Breugel, van der Schaar 2025, ICML"

_COLUMNS = {
    "I-Prec": "FTFFFTFTFTTTFFFFTFTTFTFFFTFFFF",
    "Dens": "TTFTFTTFTTTTFFFFTFTTTTTTTTFFFF",
    "IAP": "FTFTFFFFFFFFFTFFTFFTFTTTTTTFFF",
    "C-Prec": "TTTTFFFFFFFFFFFFFFFFTTTTTTFFFF",
    "symPrec": "FTFFFFFFFFFFTTFFFFTTFTTTTTFFFF",
    "P-Prec": "FTFTFTFTFTFTFFFFTFTTFTTTFTFFFF",
    "I-Rec": "FTFFFHFFFTTTFFFFFFTFFFTFTTFFFF",
    "Cov": "TTTTFFTTTTFFFFFFFFFFTFTTTTFFFF",
    "IBR": "FTFTFLFFFFFFFFFFFFTTFFTTFTTFFF",
    "C-Rec": "TTTTFFTTTFFFFFFFFFTFTFTTTTFFFF",
    "symRec": "FTFTFFFFFTFFTTFFFFFFFFTTTTFFFF",
    "P-Rec": "FTFTFHFTFTFTFFFFFFTFFFTTFTFFFF",
}
"""One mark per row of the matrix, in the order of `DEMANDS`.

In the code behind the tables, as in the one of the metric's authors, "C-Prec" counts fakes in balls around reals and
"C-Rec" reals in balls around fakes, the reverse of the definition: neither stands for genpr's covers.
"""

COLUMN_OF = MappingProxyType(
    {
        "precision": "I-Prec",
        "recall": "I-Rec",
        "density": "Dens",
        "coverage": "Cov",
        "symmetric_precision": "symPrec",
        "symmetric_recall": "symRec",
        "p_precision": "P-Prec",
        "p_recall": "P-Rec",
    }
)
"""The published column of a metric, where there is one."""


def published_mark(metric: str, row: int) -> Mark | None:
    """The published mark of a metric in row `row` of the matrix; None if it was not audited."""
    column = COLUMN_OF.get(metric)
    if column is None:
        return None
    mark: Mark = _MARKS[column][row]
    return mark


def _marks(column: str) -> tuple[Mark, ...]:
    known: dict[str, Mark] = {"T": "T", "F": "F", "H": "H", "L": "L"}
    return tuple(known[letter] for letter in column)


_MARKS = {name: _marks(column) for name, column in _COLUMNS.items()}
