"""Runs one test file with pytest; a missing pytest is a failure that says so, not a silent skip."""

import sys

try:
    import pytest
except ImportError:
    sys.exit(f"pytest is missing in {sys.executable}. set PLIMSOLL_PYTHON to a Python that has it "
             "(Debian: python3-pytest, or the venv of 'make -f Makefile.local deps')")

sys.exit(pytest.main(["-q", "--no-header", "-p", "no:cacheprovider", "-rfE", *sys.argv[1:]]))
