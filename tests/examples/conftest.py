import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# A script finds the modules beside it; so must a test of them.
if str(EXAMPLES) not in sys.path:
    sys.path.insert(0, str(EXAMPLES))
