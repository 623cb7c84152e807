"""Texts as inputs of a model, by a map that no text has shaped."""

import numpy as np


def hashed(rows: list[str], n_inputs: int) -> np.ndarray:
    """Words and letters of texts by a fixed hash, of length one: (n, n_inputs)."""
    from sklearn.feature_extraction.text import HashingVectorizer  # takes a second

    half = n_inputs // 2
    words = HashingVectorizer(n_features=half, ngram_range=(1, 2))
    letters = HashingVectorizer(n_features=n_inputs - half, analyzer="char_wb", ngram_range=(3, 5))
    both = [each.transform(rows).toarray() for each in (words, letters)]
    return np.concatenate(both, axis=1) / np.sqrt(2)
