"""Entities: names that are one, vocabularies, where they occur in texts, and what an answer of a language model lists."""
