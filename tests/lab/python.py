"""Becomes the Python of the lab, where SGLang can be imported: `python tests/lab/python.py -c …`.

Its environment is the one that a server of the lab gets. Exit status 3: the lab isn't built.
"""

import os
import sys

from install import is_built, venv_path, venv_python
from serve import serving_environment

if __name__ == "__main__":
    venv = venv_path()
    if not is_built(venv):
        print(f"the lab in {venv} is not built; do: python tests/lab/install.py", file=sys.stderr)
        sys.exit(3)
    python = str(venv_python(venv))
    os.execve(python, [python, *sys.argv[1:]], serving_environment(venv))
