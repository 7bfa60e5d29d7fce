"""How long a page takes and how much memory: `python -m benchmarks.reports RUN_FOLDER`.

The run's requests are repeated up to `--requests` (100,000), as a run of hours has them, and its
page is rendered in a process of its own, whose time and peak memory are printed. Goals: 10 s, 1 GB
and a file under 3 MB.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_RENDER = """
import json, resource, sys, time
begun = time.perf_counter()
from pathlib import Path
from bench.store import load_run
import reports
folder = Path(sys.argv[1])
file = reports.write_page(reports.run_page(load_run(folder)), folder / "report.html")
print(json.dumps({
    "seconds": round(time.perf_counter() - begun, 2),
    "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    "file_mb": round(file.stat().st_size / 1e6, 2),
}))
"""


def inflate(folder: Path, requests: int) -> int:
    """Repeat the rows of samples.parquet; returns how many there are."""
    file = folder / "samples.parquet"
    table = pq.read_table(file)
    times = -(-requests // table.num_rows)
    pq.write_table(pa.concat_tables([table] * times), file, row_group_size=20_000)
    return table.num_rows * times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--requests", type=int, default=100_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / asked.run.name
        shutil.copytree(asked.run, folder)
        count = inflate(folder, asked.requests)
        done = subprocess.run(
            [sys.executable, "-c", _RENDER, str(folder)],
            check=True,
            capture_output=True,
            text=True,
        )
    told = json.loads(done.stdout)
    print(
        f"{count:,} requests: {told['seconds']} s, {told['peak_mb']} MB at most, "
        f"{told['file_mb']} MB of HTML"
    )


if __name__ == "__main__":
    main()
