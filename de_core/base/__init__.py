"""The lowest floor: the op library, the environment, argument checks, paths and progress."""
