"""What each metric says, in one line for someone who never saw it."""

MEANING = {
    "precision": "share of fakes close to some real image (fidelity)",
    "recall": "share of reals close to some fake image (diversity)",
    "density": "reals around each fake, over k; may pass 1 (fidelity)",
    "coverage": "share of reals with a fake right beside (diversity)",
}
