"""REST gateway for models with dynamic embedding tables.

The package is called ``server`` in the checkout and ``de_core_gateway`` where it is installed, so
its modules import each other relatively. Run it with ``python -m server --model-dir DIR``, or build
it in code with ``server.app.create_app(settings, engine)``. Importing this package never imports
TensorFlow; only ``server.engines.embedded.saved_model`` does.
"""

__version__ = "0.1.0"
#: The command that runs the gateway, under the package's name here.
COMMAND = f"python -m {__name__}"
