"""Lists the private names of TensorFlow and Keras that keep numbers from being silently wrong.

Each prevents one silent loss. A test asserts that each name still exists.
"""

from __future__ import annotations

#: Bool attribute of a `tf.Variable`. A Saver reads it before it saves the variable. We raise there
#: if the rows of the table would be left out.
ASKED_BY_SAVERS = "_in_graph_mode"
#: Attribute of a `tf.compat.v1.train.Saver`: the objects that it saves, as a list or a dict.
GIVEN_TO_SAVER = "_var_list"
#: Function of tf_keras that writes old .h5 files of weights. It would lose the rows.
WRITER_OF_H5_FILES = "save_subset_weights_to_hdf5_group"
#: Method of Keras's SwapEMAWeights that would swap averages of ordinary variables alone.
SWAPPER_OF_AVERAGES = "_apply_to_ema_optimizers"
