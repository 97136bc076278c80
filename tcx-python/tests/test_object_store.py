"""Caches in an object store: machines with a near tier each, on the test server that `cargo xtask python` builds."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import tcx_cache as tcx

SERVER = Path(os.environ.get("TCX_TEST_S3") or Path(__file__).parents[2] / "target/debug/tcx-test-s3")
SECRET = "hunter2hunter2"
CREDENTIALS = {"aws_access_key_id": "AKIATEST", "aws_secret_access_key": SECRET, "aws_region": "us-east-1"}

needs_server = pytest.mark.skipif(not SERVER.is_file(), reason="the test server is not here: run `cargo build -p tcx-test-s3`")


class Server:
    """A server whose objects are in a directory, so that it can be away for a while."""

    def __init__(self, directory):
        self.directory, self.address = directory, "127.0.0.1:0"
        self.start()

    def start(self):
        self.process = subprocess.Popen([SERVER, self.address, self.directory], stdout=subprocess.PIPE, text=True)
        base = self.process.stdout.readline().strip()
        assert base, "the server has not started"
        self.address, self.url = base.split("/")[2], base + "features"

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def server(tmp_path):
    """A server without objects."""
    (tmp_path / "objects").mkdir()
    server = Server(tmp_path / "objects")
    yield server
    if server.process.poll() is None:
        server.stop()


@pytest.fixture
def environment(monkeypatch):
    """The credentials, where programs have them."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name.upper(), value)


def machine(server, near, **options):
    """A cache on a machine with this near tier."""
    return tcx.Cache(server.url, near_tier=near, storage_options={**CREDENTIALS, "deadline": 5}, **options)


@needs_server
def test_what_one_machine_computes_another_reads(server, tmp_path, linear):
    inputs = torch.randn(3, 4)
    options = {"near_tier": tmp_path / "one", "storage_options": CREDENTIALS}
    cached = tcx.cached(linear, server.url, id="linear_v1", **options)
    expected = cached(inputs, ids=["a", "b", "c"])
    cached.flush()
    with machine(server, tmp_path / "other") as cache:
        assert cache.modules() == ["linear_v1"]
        assert cache.path == server.url and server.url in repr(cache)
        # The columns are not declared: they are those of the stored rows.
        other = cache.module(linear, "linear_v1")
        assert torch.equal(other.fetch(["a", "b", "c"]), expected)
        assert other.coverage(["a", "z"]).missing == ["z"] and other.stored_ids() == ["a", "b", "c"]
        assert other.describe(["a"])[0].segment
        other.invalidate(["a"])
        traffic = other.stats()["traffic"]
        assert traffic["bytes_received"] > 0 and traffic["waiting_files"] == 0
    cached.refresh()
    assert cached.coverage(["a", "b"]).missing == ["a"]
    cached.close()


@needs_server
def test_machines_divide_a_list_in_a_store_by_rank_and_by_leases(server, tmp_path, linear):
    def load(missing):
        return torch.tensor([[float(number)] * 4 for number in missing])

    for rank in range(2):
        cached = machine(server, tmp_path / str(rank)).module(linear, "linear_v1", outputs=tcx.f32[2])
        report = cached.warm_sharded(range(200), load, rank=tcx.Rank(rank, 2), progress=False)
        assert report.computed == report.asked
    shared = machine(server, tmp_path / "shared").module(linear, "linear_v1", outputs=tcx.f32[2])
    report = shared.warm_shared(range(300), load, range_size=50)
    assert (report.asked, report.computed, [worker.ranges for worker in report.workers]) == (300, 100, [6])
    other = machine(server, tmp_path / "other").module(linear, "linear_v1", outputs=tcx.f32[2])
    assert torch.allclose(other.fetch(list(range(300))), linear(load(range(300))), atol=1e-4)


@needs_server
def test_calls_go_on_while_the_store_is_away_and_rows_are_sent_when_it_is_back(server, tmp_path):
    cache = machine(server, tmp_path / "one")
    table = cache.table("t_v1", outputs=int)
    table.put(["a"], [1])
    cache.flush()
    server.stop()
    assert table.fetch(["a", "b"], lambda missing: [len(missing) + 1]) == [1, 2]
    table.flush_local()
    cache.flush_local()
    assert table.stats()["traffic"]["waiting_files"] == 1
    with pytest.raises(tcx.IoError, match="t_v1") as failed:
        cache.flush()
    with pytest.raises(tcx.IoError) as unopened:
        cache.table("other_v1", outputs=int)
    for error in (failed, unopened):
        assert SECRET not in str(error.value)
    off = machine(server, tmp_path / "one", mode="off")
    assert off.table("t_v1").fetch(["a"], lambda missing: [7]) == [7]
    server.start()
    cache.flush()
    cache.close()
    with machine(server, tmp_path / "other", mode="read_only") as other:
        assert other.table("t_v1").get(["a", "b"]) == [1, 2]


PROGRAM = """
import sys, tcx_cache as tcx
table = tcx.Cache(sys.argv[1], near_tier=sys.argv[2], storage_options={"deadline": 5}).table("t_v1", outputs=int)
table.put(["a"], [1])
table.flush()
print("flushed", flush=True)
sys.stdin.readline()
print(table.fetch(["b"], lambda missing: [2]))
"""


@needs_server
def test_a_program_may_end_while_the_store_is_away_and_the_next_one_sends_its_rows(server, tmp_path, environment):
    arguments = [sys.executable, "-c", PROGRAM, server.url, str(tmp_path / "near")]
    program = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert program.stdout.readline() == "flushed\n"
    server.stop()
    shown, errors = program.communicate("\n", timeout=120)
    assert (program.returncode, shown) == (0, "[2]\n") and "lost" not in errors, errors
    server.start()
    with machine(server, tmp_path / "near") as cache:
        cache.table("t_v1", outputs=int).flush()
    with machine(server, tmp_path / "other") as cache:
        assert cache.table("t_v1", outputs=int).get(["a", "b"]) == [1, 2]


@needs_server
def test_handles_travel_to_other_processes_without_credentials(server, tmp_path, linear, environment):
    cache = tcx.Cache(server.url, near_tier=tmp_path / "near", storage_options={"deadline": 20})
    cached = cache.module(linear, "linear_v1")
    expected = cached(torch.randn(2, 4), ids=["a", "b"])
    cached.flush()
    for own in (cache, cached, cached.view(1)):
        assert SECRET.encode() not in pickle.dumps(own)
    travelled = pickle.loads(pickle.dumps(cached))
    assert torch.equal(travelled.fetch(["a", "b"]), expected)
    assert pickle.loads(pickle.dumps(cache)).path == server.url
    program = "import pickle, sys; print(pickle.load(sys.stdin.buffer).fetch(['b', 'a']).sum().item())"
    done = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(cached), capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(expected.sum().item())
    dataset = tcx.torch.FeatureDataset(cached, ["a", "b"])
    loader = torch.utils.data.DataLoader(dataset, batch_size=2, num_workers=1, multiprocessing_context="fork")
    assert torch.equal(next(iter(loader)), expected)


def test_credentials_are_neither_shown_nor_pickled(tmp_path):
    options = {**CREDENTIALS, "deadline": 2}
    cache = tcx.Cache("s3://bucket/prefix", near_tier=tmp_path, storage_options=options)
    assert cache.path == "s3://bucket/prefix"
    with pytest.raises(tcx.InvalidSettingsError, match="aws_access_key_id, aws_secret_access_key.*set them in the environment") as refused:
        pickle.dumps(cache)
    for shown in (str(refused.value), repr(cache), repr(cache._place), str(vars(cache))):
        assert SECRET not in shown
    plain = {"aws_region": "eu-central-1", "AWS_ENDPOINT": "http://localhost:9000", "allow_http": True, "deadline": 2.5, "parallel": 4}
    assert pickle.loads(pickle.dumps(tcx.Cache("s3://bucket/prefix", near_tier=tmp_path, storage_options=plain))).path == "s3://bucket/prefix"
    hidden = {"aws_endpoint": f"http://user:{SECRET}@localhost:9000"}
    with pytest.raises(tcx.InvalidSettingsError, match="the endpoint in the environment or the options contains a user, a password") as refused:
        tcx.Cache("s3://bucket/prefix", near_tier=tmp_path, storage_options=hidden)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://host/b", "expected s3://"),
        ("s3:/bucket/prefix", "followed by one slash"),
        (Path("s3://bucket/prefix"), "as a string"),
        (f"s3://key:{SECRET}@bucket/prefix", "credentials belong into the environment"),
        (f"https://host/b/p?token={SECRET}", "a token belongs into the environment"),
    ],
)
def test_a_url_that_cannot_be_opened_is_refused_and_no_directory_is_made_of_it(url, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(tcx.InvalidPathError, match=message) as refused:
        tcx.Cache(url, near_tier=tmp_path / "near").table("t_v1", outputs=int).put(["a"], [1])
    assert SECRET not in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_a_file_url_is_a_directory(tmp_path):
    with tcx.Cache(f"file://{tmp_path}/cache", near_tier=tmp_path / "near") as cache:
        assert cache.path == f"{tmp_path}/cache"
        cache.table("t_v1", outputs=int).put(["a"], [1])
    assert tcx.Cache(tmp_path / "cache").table("t_v1").get(["a"]) == [1]
    assert not (tmp_path / "near").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"storage_options": {"aws_secret": SECRET}}, "there is no setting `aws_secret`"),
        ({"storage_options": {"aws_region": [SECRET]}}, "`aws_region` is of type list"),
        ({"storage_options": {"deadline": "soon"}}, "`deadline`: found 'soon'"),
        ({"storage_options": {"parallel": 0}}, "`parallel`: found 0"),
        ({"storage_options": {"parallel": 1 << 64}}, "`parallel`: found 18446744073709551616"),
        ({"spool_bytes": "many"}, "`spool_bytes`: found 'many'"),
        ({"near_bytes": -1}, "`near_bytes`: found -1"),
        ({"spool_bytes": 1 << 64}, "`spool_bytes`: found 18446744073709551616"),
    ],
)
def test_a_setting_of_a_store_that_cannot_be_used_is_refused(options, message, tmp_path):
    with pytest.raises(tcx.InvalidSettingsError, match=message) as refused:
        tcx.Cache("s3://bucket/prefix", near_tier=tmp_path, **options)
    assert SECRET not in str(refused.value)


def test_a_near_tier_without_a_path_is_refused():
    with pytest.raises(tcx.InvalidPathError, match="`near_tier`: the path is empty"):
        tcx.Cache("s3://bucket/prefix", near_tier="")


def test_a_cache_that_is_pickled_uses_the_near_tier_of_where_it_arrives_unless_one_was_named(tmp_path, monkeypatch):
    monkeypatch.setenv("TCX_NEAR_TIER", str(tmp_path / "one"))
    plain = {"aws_region": "eu-central-1"}
    by_default = pickle.dumps(tcx.Cache("s3://bucket/prefix", storage_options=plain))
    named = pickle.dumps(tcx.Cache("s3://bucket/prefix", near_tier=tmp_path / "named", storage_options=plain))
    monkeypatch.setenv("TCX_NEAR_TIER", str(tmp_path / "other"))
    assert str(pickle.loads(by_default)._place.native.near_tier) == str(tmp_path / "other")
    assert str(pickle.loads(named)._place.native.near_tier) == str(tmp_path / "named")
