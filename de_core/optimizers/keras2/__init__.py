"""tf_keras optimizers that train tables."""
