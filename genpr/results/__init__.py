"""What a score found: values, families, provenance; written, read back, and compared."""
