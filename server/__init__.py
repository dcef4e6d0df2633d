"""REST gateway for models with dynamic embedding tables.

Run it with ``python -m server --model-dir DIR``; build it in code with
``server.app.create_app(settings, engine)``. Importing this package, or any module of it
outside ``server.engines.embedded.saved_model``, never imports TensorFlow.
"""

__version__ = "0.1.0"
