"""``python -m quantcore``: see `quantcore.commands`."""

import sys

from quantcore.commands import main

if __name__ == "__main__":
    sys.exit(main())
