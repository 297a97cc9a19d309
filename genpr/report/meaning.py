"""What each metric says, in one line for someone who never saw it."""

MEANING = {
    "precision": "share of fakes that look like some real image (fidelity)",
    "recall": "share of reals that some fake looks like (diversity)",
    "density": "how many reals vouch for a fake, over k (fidelity; may pass 1)",
    "coverage": "share of reals with a fake among their nearest (diversity)",
}
