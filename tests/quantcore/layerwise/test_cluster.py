"""At the workers of a Dask cluster: the table of one process to the last bit, whatever happens to a worker."""

import importlib
import json
import os
import signal
from dataclasses import replace
from itertools import chain, islice
from threading import Event

import pytest
import torch
from safetensors.torch import save_file

import quantcore as qc
from quantcore import layerwise
from quantcore.__main__ import main
from quantcore.checkpoints import MemoryFolder, open_checkpoint
from quantcore.layerwise import cluster, measure

# blocks within rows, over all rows and over all elements, which are cut into boxes differently
SCHEMES = [
    "int4 per_group(32)", "uint4 asymmetric per_tensor", "int4 symmetric per_channel(1)",
    "torchao.nvfp4", "int4 per_block([2,16])",
]  # fmt: skip


def weights(count=2):
    generator = torch.Generator().manual_seed(0)
    found = {f"w{i}": torch.randn(96, 64, generator=generator) * 10.0**i for i in range(count)}
    found["half"] = torch.randn(33, 32, generator=generator).bfloat16()
    found["nan"] = found["w0"].clone().index_put_((torch.tensor(60), torch.tensor(3)), torch.tensor(torch.nan))
    return found | {"norm": torch.ones(64)}


def distributed():
    """The package, which every worker of the tests would take half a second to import with this module."""
    return importlib.import_module("distributed")


def cluster_of(workers, processes=False):
    return distributed().LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=processes, dashboard_address="127.0.0.1:0"
    )


def client_of(its_cluster):
    return distributed().Client(its_cluster, set_as_default=False)


def saved(folder, tensors):
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    return open_checkpoint(folder)


def finished(checkpoint, **more):
    *_, last = qc.sensitivity(checkpoint, SCHEMES, **more)
    return json.dumps(last.table.as_dict())


@pytest.fixture(scope="module")
def local():
    """Two workers in this process, which need no new ones."""
    with cluster_of(2) as found:
        yield found


@pytest.fixture(scope="module")
def client(local):
    with client_of(local) as found:
        yield found


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The table of one process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "WHOLE", 2000)
        return finished(saved(tmp_path_factory.mktemp("alone") / "model", weights()))


@pytest.fixture
def checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "WHOLE", 2000)  # so that the weights are cut into boxes of rows
    return saved(tmp_path / "model", weights())


def test_the_table_is_that_of_one_process(checkpoint, client, alone):
    """With boxes of rows and ranges over them, NaN, a vector; an unreadable weight has its reason."""
    steps = list(qc.sensitivity(checkpoint, SCHEMES, client=client))
    assert json.dumps(steps[-1].table.as_dict()) == alone
    assert {step.workers for step in steps} == {2}
    assert len(measure.WeightWalk(checkpoint.tensors["w0"], [qc.Scheme.parse("int8 per_tensor")]).boxes) > 2


@pytest.mark.slow  # they are measured by the same calls; a page's test has estimates of a cluster
def test_outputs_and_estimates_are_those_of_one_process(checkpoint, client, tmp_path):
    """With an imatrix, and of a sample."""
    counts = {f"{name}.counts": torch.ones(1, 1) for name in ("w0", "half")}
    sums = {"w0.in_sum2": torch.rand(1, 64), "half.in_sum2": torch.rand(1, 32)}
    imatrix = imatrix_of(tmp_path / "imatrix.gguf", sums | counts)
    found = finished(checkpoint, imatrix=imatrix, client=client)
    assert found == finished(checkpoint, imatrix=imatrix)
    rows = {row["name"]: row["cells"] for row in json.loads(found)["rows"]}
    assert rows["w0"][0]["output_error"] > 0
    estimates = [list(qc.sensitivity(checkpoint, SCHEMES[:3], sample=True, **more)) for more in ({}, {"client": client})]
    own, other = ({name: [cell.sse for cell in row.cells] for name, row in steps[-1].table.estimates.items()} for steps in estimates)
    assert str(own) == str(other)


def imatrix_of(path, tensors):
    from gguf import GGUFWriter

    writer = GGUFWriter(path, "")
    writer.add_type("imatrix")
    writer.add_array("imatrix.datasets", ["none"])
    writer.add_uint32("imatrix.chunk_count", 1)
    writer.add_uint32("imatrix.chunk_size", 1)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return open_checkpoint(path)


def test_a_worker_that_is_gone_loses_nothing(checkpoint, monkeypatch, alone):
    """It goes with the boxes that it had done of a weight, while it works at another."""
    errors, boxes, held, goes_on = measure.WeightWalk.errors, [], [], Event()

    def measured(walk, box, known):
        boxes.append(box)
        if len(boxes) == 6:
            held.append(distributed().get_worker())
            goes_on.wait()
        return errors(walk, box, known)

    monkeypatch.setattr(cluster, "_EVERY", 0.001)
    with cluster_of(2) as two, client_of(two) as client:
        monkeypatch.setattr(measure.WeightWalk, "errors", measured)
        steps = []
        for step in qc.sensitivity(checkpoint, SCHEMES, client=client):
            steps.append(step)
            if held and not goes_on.is_set():
                two.sync(held[0].close, nanny=False, executor_wait=False)
                goes_on.set()
        monkeypatch.setattr(measure.WeightWalk, "errors", errors)
        assert steps[-1].workers == 1
    assert json.dumps(steps[-1].table.as_dict()) == alone


@pytest.mark.slow
def test_a_worker_that_is_killed_loses_nothing(tmp_path):
    """Two processes with true boxes, of which one is killed while it works."""
    generator = torch.Generator().manual_seed(0)
    large = {f"large{i}": torch.randn(5000, 4096, generator=generator).bfloat16() for i in range(2)}
    checkpoint = saved(tmp_path / "model", large | weights())
    with cluster_of(2, processes=True) as two, client_of(two) as client:
        pids = client.run(os.getpid)
        steps = []
        for step in qc.sensitivity(checkpoint, SCHEMES, client=client):
            steps.append(step)
            working = [worker for worker, calls in client.processing().items() if calls]
            if pids and working:
                os.kill(pids[working[0]], signal.SIGKILL)
                pids = {}
        assert not pids
        assert json.dumps(steps[-1].table.as_dict()) == finished(checkpoint)


def test_stopped_it_leaves_nothing_at_the_workers_and_goes_on(checkpoint, client, local, alone):
    run = qc.sensitivity(checkpoint, SCHEMES, client=client)
    step = next(step for step in run if len(step.table.rows) == 2)
    assert local.scheduler.tasks
    run.close()
    for _ in range(2000):  # the scheduler is told, and forgets them when it has heard
        if not local.scheduler.tasks:
            break
        client.nthreads()
    assert not local.scheduler.tasks
    kept = layerwise.Table.of_dict(json.loads(json.dumps(step.table.as_dict())))
    assert finished(checkpoint, client=client, table=kept) == alone


@pytest.mark.slow  # a page's test sees what such steps say
def test_while_a_weight_takes_long_there_are_steps_without_a_row(checkpoint, client, monkeypatch):
    monkeypatch.setattr(cluster, "_EVERY", 0.001)
    steps = list(qc.sensitivity(checkpoint, SCHEMES, client=client))
    assert [step for step in steps[1:] if step.row is None]
    assert len(steps[-1].table.rows) == len(checkpoint.tensors)


def test_what_workers_can_t_do_is_said_before_anything_is_measured(checkpoint, client, tmp_path, monkeypatch):
    other = saved(tmp_path / "other", weights(1)).address
    in_memory = open_checkpoint(MemoryFolder({"m.safetensors": (tmp_path / "model/model.safetensors").read_bytes()}))
    for given, said in (
        (in_memory, "no address that workers could open"),
        (replace(checkpoint, address=str(tmp_path / "none")), "^The worker at inproc://.* can't open the checkpoint: There is no file or folder"),
        (replace(checkpoint, address=other), "^The worker at inproc://.* finds other files at '.*other', by their sizes or headers"),
    ):  # fmt: skip
        with pytest.raises(qc.QuantError, match=said):
            next(qc.sensitivity(given, SCHEMES, client=client))
    with pytest.raises(qc.QuantError, match="forward= runs your model in this process, not at workers"):
        next(qc.sensitivity(checkpoint, SCHEMES, client=client, forward=lambda weights: torch.ones(1, 1)))
    with pytest.raises(qc.QuantError, match="client must be a dask"):
        next(qc.sensitivity(checkpoint, SCHEMES, client="tcp://10.0.0.1:8786"))
    for same, who in ((1, "scheduler"), (3, "worker at .*")):  # those that ask before one answers with another
        sources = chain(["a"] * same, ["b"], ["a" if same == 1 else "b"] * 9)
        monkeypatch.setattr(cluster, "_sources", lambda sources=sources: next(sources))
        with pytest.raises(qc.QuantError, match=f"^The (Dask )?{who} has quantcore b, .* but here is quantcore a, .*; install the same"):
            next(qc.sensitivity(checkpoint, SCHEMES, client=client))


def test_a_later_worker_with_other_files_ends_it(checkpoint, client, tmp_path):
    """What it finds is checked with every task, since workers may come at any time."""
    run = qc.sensitivity(checkpoint, SCHEMES, client=client)
    assert next(run).workers == 2
    save_file(weights(1), tmp_path / "model/model.safetensors")
    cluster._opened.cache_clear()
    with pytest.raises(qc.QuantError, match=r"^A worker finds other files at"):
        list(run)


def test_a_cluster_without_workers_or_scheduler(checkpoint):
    with cluster_of(0) as own, client_of(own) as client:
        with pytest.raises(qc.QuantError, match="The Dask scheduler has no workers; start one"):
            next(qc.sensitivity(checkpoint, SCHEMES, client=client))
        own.scale(1)
        client.wait_for_workers(1)
        run = qc.sensitivity(checkpoint, SCHEMES, client=client)
        assert next(run).workers == 1
        client.close()
        with pytest.raises(qc.QuantError, match="The Dask scheduler is gone"):
            list(run)
    with pytest.raises(qc.QuantError, match="workers died of the same weight"), cluster._in_words():
        raise distributed().KilledWorker("w", None, 3)


def test_the_command(checkpoint, local, capsys, tmp_path, monkeypatch, alone):
    """When the cluster fails, what was measured is in the file, and the next run goes on."""
    kept = tmp_path / "kept.json"
    arguments = ["sensitivity", checkpoint.address, "--schemes", "; ".join(SCHEMES), "--json", str(kept)]
    measured = cluster.Workers.measured

    def failing(*given):
        yield from islice(filter(None, measured(*given)), 2)
        raise qc.QuantError("The Dask scheduler is gone.")

    monkeypatch.setattr(cluster.Workers, "measured", failing)
    arguments += ["--scheduler", local.scheduler_address, "--resume"]
    assert main(arguments) == 2
    assert capsys.readouterr() == ("", "The Dask scheduler is gone.\n")
    assert len(json.loads(kept.read_text())["rows"]) == 2
    monkeypatch.setattr(cluster.Workers, "measured", measured)
    assert main(arguments) == 0
    assert "3 weights measured, 2 left alone, 0 not yet measured." in capsys.readouterr().out
    assert json.loads(kept.read_text())["rows"] == json.loads(alone)["rows"]
