"""Lists the private names of TensorFlow and Keras that this library uses.

Each name serves to prevent one silent loss of rows or numbers. A test asserts that it still exists.
"""

from __future__ import annotations

#: Bool attribute of a `tf.Variable`. A Saver reads it before it saves the variable. We then raise
#: if the Saver would leave out the table's rows.
ASKED_BY_SAVERS = "_in_graph_mode"
#: Attribute of a `tf.compat.v1.train.Saver`: the saved objects, as a list or a dict.
GIVEN_TO_SAVER = "_var_list"
#: Function of tf_keras that writes old .h5 files of weights, without the rows of tables.
WRITER_OF_H5_FILES = "save_subset_weights_to_hdf5_group"
#: Attribute of an optimizer of Keras 3 or tf_keras: the keys of variables without weight decay.
VARIABLES_WITHOUT_DECAY = "_exclude_from_weight_decay"
#: Attributes of such an optimizer: the patterns of names without weight decay. The first is of
#: Keras 3: one pattern or None. The second is of tf_keras: a list.
NAMES_WITHOUT_DECAY = ("_exclude_from_weight_decay_pattern", "_exclude_from_weight_decay_names")
#: Attributes of a Nadam: the product of the momenta of all steps. The first is of Keras 3 and
#: tf_keras, the second of a legacy Nadam.
PRODUCTS_OF_NADAM = ("_u_product", "_m_cache")
#: Attribute of a Nadam of tf_keras: the number of steps in that product, plus 1.
UPDATES_OF_NADAM = "_u_product_counter"
#: Method of Keras's SwapEMAWeights. It swaps averages of ordinary variables, but not of rows.
SWAPPER_OF_AVERAGES = "_apply_to_ema_optimizers"
