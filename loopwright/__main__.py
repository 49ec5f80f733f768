"""``python -m loopwright``: the command line."""

import sys

from loopwright.cli import main

if __name__ == "__main__":
    sys.exit(main())
