"""The command `de-core`.

It is a package beside `de_core`, because importing `de_core` loads TensorFlow, which takes seconds.
These modules import only the standard library. A verb imports more when it runs.
"""
