import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# Python finds modules beside a script. The tests need the same path.
if str(EXAMPLES) not in sys.path:
    sys.path.insert(0, str(EXAMPLES))
