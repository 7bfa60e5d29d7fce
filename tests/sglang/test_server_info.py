import json

import pytest

from bench.sglang.server_info import Difference, differences, effective_config


def info_of(folder):
    return json.loads((folder / "server_info.json").read_text())


def effective_of(**info):
    return effective_config(info)


def names(found):
    return [difference.name for difference in found]


def test_a_recorded_speculative_server_is_read(eagle3):
    effective = effective_config(info_of(eagle3))
    speculative = dict(effective.speculative)
    assert speculative["algorithm"] == "EAGLE3"
    assert speculative["num_steps"] == 3
    assert speculative["eagle_topk"] == 1
    assert speculative["num_draft_tokens"] == 4
    assert speculative["adaptive"] is False
    assert effective.version == "0.5.23"
    assert effective.engine == "sglang"
    assert not effective.simulated
    assert effective.max_total_num_tokens == info_of(eagle3)["max_total_num_tokens"]
    assert effective.decode_graph_batch_sizes == ()
    assert dict(effective.other)["disable_overlap_schedule"] == "true"


def test_recorded_arms_differ_only_where_they_should(eagle3, baseline):
    arm, base = effective_config(info_of(eagle3)), effective_config(info_of(baseline))
    assert dict(base.speculative)["algorithm"] is None
    different = dict(set(arm.other) ^ set(base.other))
    assert list(different) == ["disable_overlap_schedule"]


def test_every_recorded_setting_is_kept_or_left_out_on_purpose(recording):
    info = info_of(recording)
    effective = effective_config(info)
    kept = {f"speculative_{name}" for name, _ in effective.speculative} | set(
        dict(effective.other)
    )
    left_out = {key for key in info if not key.startswith("_")} - kept
    assert left_out == {
        *("internal_states", "max_total_num_tokens", "version", "status", "startup_time"),
        *("kv_events", "hicache_object_layout", "launch_command", "host", "port", "nccl_port"),
        *("dist_init_addr", "grpc_port", "random_seed", "api_key", "admin_api_key"),
        *("ssl_keyfile_password", "watermark_key", "watermark_key_b"),
    }
    assert all(isinstance(value, str) for value in dict(effective.other).values())


def test_what_was_asked_of_the_recorded_servers_is_what_they_run(recording):
    info = info_of(recording)
    assert differences(info["launch_command"].split(), effective_config(info)) == ()


def test_secrets_are_left_out():
    effective = effective_of(
        api_key="k1", admin_api_key="k2", ssl_keyfile_password="k3", tp_size=1
    )
    assert effective.other == (("tp_size", "1"),)


def test_a_simulated_server_says_so():
    assert effective_of(simulated=True).simulated
    assert not effective_of().simulated


def test_data_parallel_ranks_are_added_up_and_graphs_must_be_on_all():
    states = [
        {
            "memory_usage": {"token_capacity": 100 + rank},
            "decode_cuda_graph_bs": [1, 2, 4] if rank else [1, 2],
            "effective_max_running_requests_per_dp": 16,
        }
        for rank in range(2)
    ]
    effective = effective_of(max_total_num_tokens=100, internal_states=states)
    assert effective.max_total_num_tokens == 201
    assert effective.decode_graph_batch_sizes == (1, 2)
    assert dict(effective.other)["effective_max_running_requests"] == "32"


def test_a_rank_that_does_not_tell_leaves_the_whole_unknown():
    effective = effective_of(internal_states=[{"decode_cuda_graph_bs": [1]}, {}])
    assert effective.decode_graph_batch_sizes is None
    assert effective.max_total_num_tokens is None
    assert effective.other == ()


@pytest.mark.parametrize("states", [None, "x", [None], []])
def test_a_body_without_states_is_read_as_far_as_it_goes(states):
    effective = effective_of(internal_states=states, version=None, max_total_num_tokens=7)
    assert effective.version is None
    assert effective.max_total_num_tokens == 7
    assert effective.decode_graph_batch_sizes is None


@pytest.mark.parametrize(
    ("asked", "reported"),
    [
        (["--tp", "8"], {"tp_size": 8}),
        (["--mem-fraction-static", "0.90"], {"mem_fraction_static": 0.9}),
        (["--enable-metrics"], {"enable_metrics": True}),
        (["--dtype", "half"], {"dtype": "float16"}),
        (["--kv-cache-dtype", "auto"], {"kv_cache_dtype": "fp8_e4m3"}),
        (["--speculative-algorithm", "nextn"], {"speculative_algorithm": "EAGLE"}),
        (["--cuda-graph-bs-decode", "1", "2"], {"cuda_graph_bs_decode": [1, 2]}),
        (["--json-model-override-args", '{"a": 1}'], {"json_model_override_args": '{"a":1}'}),
        (
            ["--cuda-graph-config", '{"decode": {"max_bs": 8}}'],
            {"cuda_graph_config": {"decode": {"max_bs": 8, "bs": [1]}}},
        ),
        (
            ["--dp", "8", "--enable-dp-attention"],
            {"dp_size": 1, "attn_dp_size": 8, "enable_dp_attention": True},
        ),
        (["--no-such-option", "1"], {"tp_size": 1}),
        (["--api-key", "secret"], {"api_key": None}),
    ],
)
def test_what_is_the_same_is_no_difference(asked, reported):
    assert differences(asked, effective_of(**reported)) == ()


@pytest.mark.parametrize(
    ("asked", "reported", "difference"),
    [
        (["--tp", "8"], {"tp_size": 4}, ("tp_size", "8", "4")),
        (["--enable-metrics"], {"enable_metrics": False}, ("enable_metrics", "true", "false")),
        (["--model-path", "/A"], {"model_path": "/a"}, ("model_path", "/A", "/a")),
        (
            ["--max-queued-requests", "1"],
            {"max_queued_requests": None},
            ("max_queued_requests", "1", "null"),
        ),
        (
            ["--cuda-graph-bs-decode", "1", "2"],
            {"cuda_graph_bs_decode": [1]},
            ("cuda_graph_bs_decode", "1 2", "[1]"),
        ),
        (
            ["--speculative-num-draft-tokens", "8"],
            {"speculative_num_draft_tokens": 4},
            ("speculative_num_draft_tokens", "8", "4"),
        ),
        (
            ["--attention-backend", "intel_amx"],
            {"attention_backend": "torch_native"},
            ("attention_backend", "intel_amx", "torch_native"),
        ),
    ],
)
def test_what_is_not_as_asked_is_told(asked, reported, difference):
    name, was, became = difference
    found = differences(asked, effective_of(**reported))
    assert found == (Difference(name=name, asked=was, effective=became),)


def test_a_running_limit_lowered_by_memory_is_told():
    states = [{"effective_max_running_requests_per_dp": 20} for _ in range(2)]
    effective = effective_of(max_running_requests=64, internal_states=states)
    found = differences(["--max-running-requests", "64"], effective)
    assert found == (Difference(name="max_running_requests", asked="64", effective="40"),)
    assert (
        differences(["--max-running-requests", "40"], effective_of(internal_states=states)) == ()
    )


def test_process_ids_are_no_settings():
    plain = {"dp_size": 2, "rapid": True}
    told = effective_config({**plain, "scheduler_pids": [41, 42], "pid": 40, "router_pid": 39})
    assert told == effective_config(plain)
