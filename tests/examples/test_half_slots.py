"""The ranking example reaches the same quality with bfloat16 slots and row-wise moments."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from ranking.evaluation import evaluate
from ranking.model import ModelScorer
from ranking.split import split_by_time
from ranking.synthetic_log import synthetic_log
from ranking.training import TrainingOptions, train

import de_core as de

SEEDS = range(5)
VARIANTS = {
    "bfloat16 slots": (tf.bfloat16, keras.optimizers.Adam),
    "row-wise second moments": (None, de.optimizers.RowwiseAdam),
    "both": (tf.bfloat16, de.optimizers.RowwiseAdam),
}


@pytest.fixture(scope="module")
def quality_of():
    """Returns a function of a variant that trains the example with all seeds.

    The function returns the losses of the last epoch, and 1 - AUC on the test part, [seeds, 2].
    """
    split = split_by_time(synthetic_log(0, num_users=1500, num_items=1500, num_events=40_000))

    def run(slot_dtype, optimizer):
        with pytest.MonkeyPatch.context() as patch:
            layer = functools.partial(de.layers.Embedding, slot_dtype=slot_dtype)
            patch.setattr("ranking.model.de.layers.Embedding", layer)
            wrap = de.DynamicEmbeddingOptimizer
            patch.setattr(
                "ranking.model.de.DynamicEmbeddingOptimizer", lambda _: wrap(optimizer(0.01))
            )
            results = []
            for seed in SEEDS:
                options = TrainingOptions(epochs=3, dim=16, seed=seed)
                model = train(split.train, options)
                quality = evaluate(split, ModelScorer(model, split.train), seed=0)
                results.append((model.history.history["loss"][-1], 1 - quality.auc))
        return np.array(results)

    return run


@pytest.mark.slow
def test_losses_differ_less_than_those_of_two_seeds(quality_of):
    reference = quality_of(None, keras.optimizers.Adam)
    noise = reference.std(0, ddof=1)
    print(f"float32: {reference.mean(0)}, deviation between seeds {noise}")
    for name, variant in VARIANTS.items():
        found = quality_of(*variant)
        difference = (found - reference).mean(0)
        print(f"{name}: {found.mean(0)}, difference {difference}")
        # The standard error of a mean of five seeds, twice.
        bar = 2 * noise / np.sqrt(len(SEEDS))
        assert (difference < bar).all(), (name, difference, bar)
