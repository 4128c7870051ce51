"""python -m gromap.cli"""

import sys

from gromap.cli import main

sys.exit(main())
