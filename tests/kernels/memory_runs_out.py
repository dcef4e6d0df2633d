"""Fails every allocation of each kernel once. Needs alloc_failures.cc preloaded.

A verb is a call of one op. Prints one line per verb: its name, the number of injected failures, and
the number of errors that are not ResourceExhaustedError.
"""

import ctypes
import itertools
import sys
from collections.abc import Callable, Iterator
from functools import partial

import keras
import numpy as np
import tensorflow as tf

from de_core.base.ops import library

MEMORY = ctypes.CDLL(sys.argv[1])
#: Lets few allocations fail: those of one kind of table, the first, second, fourth, eighth …
IS_SAMPLE = sys.argv[3] == "sample"
# Enough keys for all threads of the pool.
SIZE = 9000
OLD = np.arange(2 * SIZE)
BATCH = OLD[:SIZE]
Verb = Callable[[], object]


def as_keys(numbers: np.ndarray, dtype: tf.DType) -> tf.Tensor:
    return tf.as_string(numbers) if dtype == tf.string else tf.constant(numbers, dtype)


def rows_of(numbers: np.ndarray, dtype: tf.DType) -> tf.Tensor:
    rows = np.stack([numbers, numbers + 1], 1)
    return (
        tf.strings.join(["row ", tf.as_string(rows)])
        if dtype == tf.string
        else tf.constant(rows, dtype)
    )


class World:
    """A table, and a served file with its rows."""

    def __init__(self, key_dtype: tf.DType, value_dtype: tf.DType, path: str) -> None:
        self.types = types = {"key_dtype": key_dtype, "value_dtype": value_dtype, "dim": 2}
        self.value_dtype, self.path = value_dtype, path
        self.table = library.de_table(anonymous=True, **types)
        self.keys, self.rows = as_keys(OLD, key_dtype), rows_of(OLD, value_dtype)
        self.batch, self.batch_rows = as_keys(BATCH, key_dtype), rows_of(BATCH, value_dtype)
        library.de_table_insert_or_assign(self.table, self.keys, self.rows)
        library.de_table_save(self.table, path)
        self.frozen = library.de_frozen_table(shared_name=path, **types)
        library.de_frozen_table_open(self.frozen, path)

    def find(self, table: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
        return library.de_table_find(table, keys, Tvalues=self.value_dtype, dim=2)[0]

    def check(self) -> None:
        for table in (self.table, self.frozen):
            np.testing.assert_array_equal(self.find(table, self.keys), self.rows)
        assert int(library.de_table_size(self.table)) == len(OLD)

    def verbs(self) -> dict[str, Verb]:
        ops, table, frozen, batch = library, self.table, self.frozen, self.batch
        types = {"Tkeys": batch.dtype, "Tvalues": self.value_dtype}
        of_rows = {"Tvalues": self.value_dtype, "dim": 2}
        verbs = {
            "find": partial(self.find, table, batch),
            "find, served": partial(self.find, frozen, batch),
            "contains": partial(ops.de_table_contains, table, batch),
            "contains, served": partial(ops.de_table_contains, frozen, batch),
            "find_or_insert": partial(ops.de_table_find_or_insert, table, batch, **of_rows),
            "insert_or_assign": partial(
                ops.de_table_insert_or_assign, table, batch, self.batch_rows
            ),
            "export": partial(ops.de_table_export, table, **types),
            "save": partial(ops.de_table_save, table, self.path + ".again"),
            "restore": partial(ops.de_table_restore, table, self.path, replace=False),
            "open": partial(ops.de_frozen_table_open, frozen, self.path),
            "stats": partial(ops.de_table_stats, table),
            "reserve": lambda: ops.de_table_reserve(table, tf.constant(10**5, tf.int64)),
            "shrink_to_fit": partial(ops.de_table_shrink_to_fit, table),
            "shard_of": partial(ops.de_shard_of, batch, num_shards=3),
            "segment_order": lambda: ops.de_segment_order(
                tf.range(SIZE, dtype=tf.int64), tf.constant(SIZE, tf.int64)
            ),
            **self.handles(),
            **self.files(),
        }
        if batch.dtype == tf.string:
            words = ops.de_strings_to_words(batch)
            verbs["strings_to_words"] = partial(ops.de_strings_to_words, batch)
            verbs["words_to_strings"] = partial(ops.de_words_to_strings, *words)
        if self.value_dtype == tf.float32:
            verbs |= self.row_gradients() | self.features() | self.steps()
        return verbs

    def steps(self) -> dict[str, Verb]:
        """Returns the verbs of optimizers."""
        ops, table, batch, nothing = library, self.table, self.batch, tf.zeros([SIZE, 2])
        hyper, rule = tf.constant([0.0, 0.0, 0.0], tf.float64), {"rule": "momentum"}
        given = [table], [batch], [nothing], [hyper]
        slot = "owner/momentum"
        return {
            "apply": partial(ops.de_tables_apply, *given, "owner", settings_of=[0], **rule),
            "find_slot": partial(
                ops.de_table_find_slot, table, batch, slot, Tvalues=tf.float32, dim=2
            ),
        }

    def features(self) -> dict[str, Verb]:
        """Returns the lookup of two features, one of them pooled, and its gradient."""
        ops, batch = library, self.batch
        splits = tf.range(0, SIZE + 1, 3, tf.int64)
        rows = [tf.ones([SIZE, 2]), tf.ones([SIZE // 3, 2])]
        attributes = {
            "table_of": [0, 1],
            "dims": [2, 2],
            "Tvalues": [tf.float32] * 2,
            "kinds": ["dense", "ragged"],
            "combiners": ["sum", "mean"],
            "lengths": [-1, 2],
            "weighted": [False, True],
            "padded": [False, False],
            "padding": ["", ""],
            "joined": False,
        }
        given = ([batch, batch], [splits], [tf.ones([SIZE])])
        trained = {"trained": [0, 1], "Tkeys": [batch.dtype] * 2, "Ttrained": [tf.float32] * 2}
        found = {"anchored": [], "Tkeys": [], "Trows": [tf.float32] * 2, **attributes}
        look_up, gradient = ops.de_lookup_features, ops.de_lookup_features_gradient
        of_weights = ops.de_lookup_features_weight_gradient
        return {
            "features": partial(look_up, [self.table] * 2, *given, [], **found),
            "features, served": partial(look_up, [self.frozen] * 2, *given, [], **found),
            "features_gradient": partial(gradient, *given, rows, **trained, **attributes),
            "features_weight_gradient": partial(
                of_weights, [self.table] * 2, *given, rows, [], **attributes
            ),
        }

    def handles(self) -> dict[str, Verb]:
        """Returns the verbs that create, delete and describe tables."""
        ops, types = library, self.types
        served = self.path + ".served"

        def close() -> None:
            handle = ops.de_frozen_table(shared_name=served, **types)
            ops.de_frozen_table_open(handle, self.path)
            ops.de_frozen_table_close(handle)

        def named() -> None:
            handle = ops.de_table(shared_name=self.path + ".named", **types)
            tf.raw_ops.DestroyResourceOp(resource=handle)

        return {
            "table": partial(ops.de_table, anonymous=True, **types),
            "table of a name": named,
            "close": close,
            "lease": lambda: ops.de_table_lease(ops.de_table(anonymous=True, **types)),
            "size": partial(ops.de_table_size, self.table),
            "process_tables": ops.de_process_tables,
            "serving_stats": partial(ops.de_serving_stats, [self.frozen], tables=["served"]),
        }

    def files(self) -> dict[str, Verb]:
        """Returns the verbs that work on files without a table."""
        ops, types = library, {"key_dtype": self.keys.dtype, "value_dtype": self.value_dtype}
        return {
            "info": partial(ops.de_snapshot_info, self.path),
            "info, verified": partial(ops.de_snapshot_info, self.path, verify=True),
            "read": partial(ops.de_snapshot_read, self.path, 0, 1, **types),
            "compact": partial(ops.de_snapshot_compact, [self.path], self.path + ".compact"),
        }

    def row_gradients(self) -> dict[str, Verb]:
        """Returns the verbs for gradients of lookups in loops."""
        ops, rows = library, self.batch_rows
        types = {"Tkeys": self.batch.dtype, "Tvalues": rows.dtype, "dim": 2}
        one = ops.de_row_gradients(self.batch, rows)
        many = tf.add_n([one, one, one])
        return {
            "loop_anchor": partial(ops.de_loop_anchor, self.table, **types),
            "row_gradients": partial(ops.de_row_gradients, self.batch, rows),
            "row_gradients, added": lambda: tf.add_n([many, one]),
            "row_gradients_concat": partial(ops.de_row_gradients_concat, many, **types),
        }


#: Values of attributes that have no default and for which the first allowed value is not valid.
ATTRIBUTES = {"rule": b"momentum", "tables": [b"table"]}


def node_of(definition) -> tf.compat.v1.NodeDef:
    """Returns a node of an op, with the simplest attributes."""
    node = tf.compat.v1.NodeDef(name="kernel", op=definition.name)
    for attribute in definition.attr:
        value, kind = node.attr[attribute.name], attribute.type
        if attribute.HasField("default_value"):
            value.CopyFrom(attribute.default_value)
        elif kind == "type":
            value.type = attribute.allowed_values.list.type[0]
        elif kind == "int":
            value.i = attribute.minimum
        elif kind == "bool":
            value.b = False
        elif kind == "string":
            allowed = attribute.allowed_values.list.s
            value.s = allowed[0] if allowed else ATTRIBUTES.get(attribute.name, b"")
        else:
            value.list.s.extend(ATTRIBUTES.get(attribute.name, []))
    return node


def graph_of(op: str) -> tf.Graph:
    """Returns a graph with a kernel of the op. The kernel is made, but its inputs are not fed."""
    definition = tf.Graph().op_def_for_type(op)
    nodes = tf.compat.v1.GraphDef()
    node = node_of(definition)
    for argument in definition.input_arg:
        if argument.type_list_attr:
            continue  # empty
        for number in range(node.attr[argument.number_attr].i if argument.number_attr else 1):
            given = nodes.node.add(name=f"{argument.name}_{number}", op="Placeholder")
            own = node.attr[argument.type_attr].type if argument.type_attr else argument.type
            given.attr["dtype"].type = own
            given.attr["shape"].shape.unknown_rank = True
            node.input.append(given.name)
    nodes.node.append(node)
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(nodes, name="")
    return graph


def kernels() -> Iterator[tuple[str, Verb]]:
    """Yields for each op a verb that makes its kernel."""

    def make(graph: tf.Graph) -> None:
        kernel = graph.get_operation_by_name("kernel")
        with tf.compat.v1.Session(graph=graph) as session:
            try:
                session.run(kernel)
            except tf.errors.InvalidArgumentError as error:
                if "You must feed a value" not in str(error):
                    raise

    for op in dir(library):
        if op.startswith("De"):
            yield f"kernel of {op}", partial(make, graph_of(op))


def sweep(world: World, verb: Verb) -> tuple[int, int]:
    injected = bad = 0
    verb()
    for forever in (0, 1):
        nth = 1
        while True:
            keras.utils.clear_session(free_memory=False)  # lets the verb create its kernels again
            assert MEMORY.de_arm(nth, forever)
            try:
                verb()
            except tf.errors.ResourceExhaustedError:
                pass
            except Exception as error:
                bad += 1
                print(f"forever, n={nth}" if forever else f"once, n={nth}", repr(error))
            if not MEMORY.de_disarm():
                break
            injected += 1
            world.check()
            verb()
            nth += nth if IS_SAMPLE else 1 + nth // 5
    return injected, bad


TYPES = [(tf.int64, tf.float32), (tf.string, tf.float32), (tf.string, tf.string)]
for number, types in enumerate(TYPES[:1] if IS_SAMPLE else TYPES):
    world = World(*types, f"{sys.argv[2]}/{number}.de")
    made = kernels() if number == 0 and not IS_SAMPLE else ()
    for name, verb in itertools.chain(world.verbs().items(), made):
        print("begin", name, types[0].name, types[1].name, flush=True)
        injected, bad = sweep(world, verb)
        print(f"{name}: {injected} injected, {bad} bad", flush=True)
