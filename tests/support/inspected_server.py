"""`streamlit run` that can be inspected: on SIGUSR1 it writes a JSON report to the path that is given first.

The report has the names of loaded modules, the numbers of frozen objects, sessions and open files, and the
CPU milliseconds of each script run.
"""

import gc
import json
import os
import signal
import sys
import time

from streamlit.runtime import get_instance
from streamlit.runtime.scriptrunner.script_runner import ScriptRunner
from streamlit.web.cli import main

run_script, runs = ScriptRunner._run_script, []


def timed(*given):
    begin = time.thread_time()
    try:
        run_script(*given)
    finally:
        runs.append(1e3 * (time.thread_time() - begin))


def report(path):
    found = {
        "modules": sorted(sys.modules),
        "frozen": gc.get_freeze_count(),
        "sessions": len(get_instance()._session_mgr.list_sessions()),
        "files": len(os.listdir("/proc/self/fd")),
        "runs": runs,
    }
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(found, file)
    os.replace(f"{path}.new", path)


if __name__ == "__main__":
    where = sys.argv[1]
    ScriptRunner._run_script = timed
    signal.signal(signal.SIGUSR1, lambda *_: report(where))
    sys.argv[:] = ["streamlit", "run", *sys.argv[2:]]
    main()
