"""The floor: the op library, the environment, checks of arguments, paths and progress."""
