"""Every script in examples/ runs, and says what its reader is told to expect."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
EXPECTED = {
    "control_loop.py": r"RMSE of the last 1000 samples: 0\.0[23]\d+",
    "online.py": r"0\.\d\d keeping all, 0\.(1\d|2\d) forgetting",
    "out_of_core.py": r"20000 rows learned, 20000 predictions written\nnoise deviation (0\.9|1\.0)",
    "own_kernel.py": r"period 2\.09 \(true: 2\.09\), noise 0\.10",
    "pipeline.py": r"R² 0\.[2-6]\d, 95 % intervals cover (9\d|8[89]) %",
}


def test_every_example_is_listed() -> None:
    assert {p.name for p in EXAMPLES.glob("*.py")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_example(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / name], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(EXPECTED[name], done.stdout), done.stdout
