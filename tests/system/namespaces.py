"""Who may not mount or make networks runs the same test in a user namespace, in which everybody may."""

import os
import subprocess
import sys

from tests.house_rules import ROOT

INSIDE = "ROLLMQ_TESTS_IN_NAMESPACE"


def may_unshare(what: str) -> bool:
    """Whether this process may make a namespace: `--mount` or `--net`. Else run the test in one."""
    probe = ["unshare", what, "true"]
    return INSIDE in os.environ or subprocess.run(probe, capture_output=True, check=False).returncode == 0


def run_in_namespace(test_id: str, what: str) -> None:
    """Run one test where it may."""
    command = ["unshare", "--map-root-user", what, sys.executable, "-m", "pytest", "-q", test_id]
    found = subprocess.run(
        command, cwd=ROOT, env={**os.environ, INSIDE: "1"}, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, f"run it as root, or where user namespaces are allowed\n{found.stdout}"
