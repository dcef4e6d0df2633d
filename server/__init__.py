"""REST gateway for models with dynamic embedding tables.

Run it with ``python -m server --model-dir DIR``, or build it in code with
``server.app.create_app(settings, engine)``. Importing this package never imports TensorFlow; only
``server.engines.embedded.saved_model`` does.
"""

__version__ = "0.1.0"
