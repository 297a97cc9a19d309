"""The real side judged once and kept: `score`, `Evaluator`, and what each image is evidence of."""
