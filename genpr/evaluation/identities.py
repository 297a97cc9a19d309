"""What the images of a set are, apart from their names: hashes that find repeats and copies."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from genpr.features.feature_set import FeatureSet


@dataclass(frozen=True)
class Identities:
    """Content hashes of one set: of the images where known, else of the feature rows."""

    rows: tuple[bytes, ...]
    distinct: frozenset[bytes]
    of_images: bool

    @classmethod
    def of(cls, features: FeatureSet) -> Identities:
        """Hash every row of a set."""
        if features.identities is not None:
            rows = tuple(row.tobytes() for row in features.identities.numpy())
        else:
            # + 0.0 turns -0.0 into 0.0: equal numbers are equal features, also where float16 is kept to save memory
            rows = tuple(
                hashlib.blake2b((row.astype(np.float32, copy=False) + 0.0).tobytes(), digest_size=16).digest()
                for row in features.features.numpy()
            )
        return cls(rows, frozenset(rows), of_images=features.identities is not None)

    @property
    def content(self) -> str:
        """Hash of all rows, whatever their order."""
        return hashlib.sha256(b"".join(sorted(self.rows))).hexdigest()

    @property
    def first_rows(self) -> list[int] | None:
        """The first row of each group of identical ones, ascending; None where no two are identical."""
        if not self.n_duplicates:
            return None
        return sorted({row: place for place, row in reversed(list(enumerate(self.rows)))}.values())

    @property
    def order(self) -> str:
        """Hash of all rows in their order."""
        return hashlib.sha256(b"".join(self.rows)).hexdigest()

    @property
    def n_duplicates(self) -> int:
        """Rows beyond the first of each group of identical ones."""
        return len(self.rows) - len(self.distinct)

    def n_shared_with(self, other: Identities) -> int:
        """Rows that also occur in `other`; 0 when one side knows its images and the other does not."""
        if self.of_images != other.of_images:
            return 0
        return sum(row in other.distinct for row in self.rows)
