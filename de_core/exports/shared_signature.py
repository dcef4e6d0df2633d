"""A signature that computes a user's part once and scores many items with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.exports.signatures import SPECS, joined, named_outputs, specs_of

#: The input that assigns items to the rows of the shared inputs.
ROW_SPLITS = "row_splits"


def shared_signature(
    shared: Callable[..., Any],
    score: Callable[..., Any],
    shared_inputs: Mapping[str, Any],
    inputs: Mapping[str, Any],
) -> tf.types.experimental.PolymorphicFunction:
    """Returns a signature for `de.export` whose shared inputs have one row per user.

    A recommender scores a thousand items for one user. A plain signature takes the user's ids once
    per item, and looks them up and computes the user's tower once per item. This one takes and
    computes them once per user. It is a plain TensorFlow graph, so every server that loads the
    export serves it. TensorFlow Ranking calls the shared inputs the context.

    The signature has the inputs of both functions, and `row_splits`, int64 [users + 1], as in a
    `tf.RaggedTensor`: the items of user `i` are the rows `row_splits[i]` to `row_splits[i + 1]`.
    So a request for one user and n items has `row_splits` [0, n].

    Args:
        shared: Called with the shared inputs as keyword arguments, each with one row per user.
            Returns a tensor [users, ...], or a list or dict of tensors.
        score: Called with the result of `shared`, which then has one row per item, and with the
            item inputs as keyword arguments. Returns a tensor [items, ...], or a list or dict.
        shared_inputs: For each shared input its `tf.TensorSpec`, `tf.RaggedTensorSpec` or
            `tf.SparseTensorSpec`, by name. Ragged and sparse inputs become several dense ones, as
            for `inputs` of `de.export`.
        inputs: The same for each item input. The first dimension of all of them is the items.

    Raises:
        TypeError: An input is not described by a spec.
        ValueError: No input is given, or two inputs of the signature have one name.
        tf.errors.InvalidArgumentError: In a request, `row_splits` do not begin with 0, do not end
            with the number of items, decrease, or are not one more than the rows of a shared
            output.

    Example:
    >>> import tensorflow as tf, de_core as de
    >>> table = de.Variable(dim=2, name="ids", initializer="ones")
    >>> ids = tf.TensorSpec([None], tf.int64)
    >>> rank = de.shared_signature(
    ...     lambda user: de.embedding_lookup(table, user),
    ...     lambda users, item: tf.reduce_sum(users * de.embedding_lookup(table, item), 1),
    ...     shared_inputs={"user": ids},
    ...     inputs={"item": ids},
    ... )
    >>> user, items = tf.constant([7], tf.int64), tf.constant([1, 2, 3], tf.int64)
    >>> rank(user, items, [0, 3])["output_0"].numpy()
    array([2., 2., 2.], dtype=float32)
    """
    for argument, specs in (("shared_inputs", shared_inputs), ("inputs", inputs)):
        if not isinstance(specs, Mapping) or not all(isinstance(s, SPECS) for s in specs.values()):
            raise TypeError(
                f"`{argument}` must map names to tf.TensorSpec, tf.RaggedTensorSpec or "
                f"tf.SparseTensorSpec. {received(**{argument: specs})}"
            )
        if not specs:
            raise ValueError(f"`{argument}` must not be empty. {received(**{argument: specs})}")
    named = [*shared_inputs.items(), *inputs.items()]
    dense = [each for name, spec in named for each in specs_of(name, spec)]
    dense.append(tf.TensorSpec([None], tf.int64, ROW_SPLITS))
    names = [each.name for each in dense]
    if len(set(names)) < len(names):
        raise ValueError(
            "The inputs of a signature must have distinct names, and none the name "
            f"{ROW_SPLITS!r}. Received: {sorted(names)}."
        )

    @tf.function(input_signature=dense, autograph=False)
    def rank(*tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        given = dict(zip(names, tensors, strict=True))
        users = {name: joined(name, spec, given) for name, spec in shared_inputs.items()}
        items = {name: joined(name, spec, given) for name, spec in inputs.items()}
        first = next(iter(items.values()))
        count = first.dense_shape[0] if isinstance(first, tf.SparseTensor) else tf.shape(first)[0]
        splits = given[ROW_SPLITS]
        items_of_user = splits[1:] - splits[:-1]
        # Wrong splits would score items for another user.
        fits = tf.reduce_all(splits[:1] == 0) & tf.reduce_all(items_of_user >= 0)
        fits &= (tf.size(splits) > 0) & (tf.reduce_sum(items_of_user) == tf.cast(count, tf.int64))
        message = (
            f"`{ROW_SPLITS}` must begin with 0, never decrease, and end with the number of items."
        )
        right = tf.debugging.Assert(fits, [message, "Received:", splits, "items:", count])

        def of_items(rows: Any) -> Any:
            message = f"`{ROW_SPLITS}` must have one more element than a shared input has rows."
            number = tf.shape(rows)[0]
            as_many = tf.debugging.assert_equal(number, tf.size(items_of_user), message)
            with tf.control_dependencies([right, as_many]):
                return tf.gather(rows, tf.repeat(tf.range(number), items_of_user))

        return named_outputs(
            score, score(tf.nest.map_structure(of_items, shared(**users)), **items)
        )

    return rank
