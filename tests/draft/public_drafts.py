"""Drafts and targets with the keys and shapes of published ones; their values are holes."""

from draft_checkpoints import Files, llama_head

IDS = "eagle_aux_hidden_state_layer_ids"

KIMI = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "kimi_k2",
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "vocab_size": 163840,
    "max_position_embeddings": 131072,
    "kv_lora_rank": 512,
    "rope_theta": 50000.0,
    "rope_scaling": {
        "type": "yarn",
        "factor": 32.0,
        "beta_fast": 1.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 4096,
    },
    "tie_word_embeddings": False,
}
KIMI_K25 = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "model_type": "kimi_k25",
    "text_config": {
        **{key: value for key, value in KIMI.items() if key != "architectures"},
        "architectures": ["DeepseekV3ForCausalLM"],
        "max_position_embeddings": 262144,
    },
}
QWEN3_235B = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 4096,
    "num_hidden_layers": 94,
    "vocab_size": 151936,
    "max_position_embeddings": 262144,
    "rope_theta": 5000000,
}
QWEN3_30B = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "rope_theta": 1000000.0,
}
LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}


def sizes(*, hidden, inter, heads, kv, vocab, rows, **more):
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "attention_bias": False,
        "hidden_act": "silu",
        "num_hidden_layers": 1,
        "hidden_size": hidden,
        "intermediate_size": inter,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "vocab_size": vocab,
        "draft_vocab_size": rows,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "tie_word_embeddings": False,
        **more,
    }


def lmsys_qwen3():
    shape = {"hidden": 4096, "inter": 24576, "heads": 64, "kv": 4, "vocab": 151936, "rows": 32000}
    config = sizes(
        **shape,
        head_dim=128,
        max_position_embeddings=40960,
        rope_theta=1000000.0,
        eagle_config={IDS: [1, 46, 90], "use_aux_hidden_state": True},
    )
    return Files(config, llama_head(**shape, head_dim=128)), QWEN3_235B


def aq_medai_kimi_k2():
    shape = {"hidden": 7168, "inter": 18432, "heads": 64, "kv": 64, "vocab": 163840, "rows": 32000}
    config = sizes(
        **shape,
        head_dim=128,
        max_position_embeddings=131072,
        max_window_layers=48,
        sliding_window=None,
        use_sliding_window=False,
        rope_theta=1000000.0,
        eagle_config={IDS: [2, 30, 58], "use_aux_hidden_state": True},
    )
    return Files(config, llama_head(**shape, head_dim=128)), KIMI


def lightseek_kimi_k25():
    shape = {"hidden": 7168, "inter": 18432, "heads": 64, "kv": 64, "vocab": 163840}
    config = sizes(
        **shape,
        rows=163840,
        head_dim=128,
        max_position_embeddings=131072,
        rope_theta=1000000.0,
        eagle_config={IDS: [2, 30, 58], "use_aux_hidden_state": True},
    )
    head = llama_head(**shape, rows=163840, head_dim=128, embed=True, maps=False)
    return Files(config, head), KIMI_K25


def lightseek_kimi_mla():
    def tensor(*shape):
        return ("BF16", shape, None)

    config = {
        **{key: value for key, value in KIMI.items() if key != "architectures"},
        "architectures": ["Eagle3DeepseekV2ForCausalLM"],
        "num_hidden_layers": 1,
        "intermediate_size": 18432,
        "num_attention_heads": 64,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "draft_vocab_size": 163840,
        "eagle_config": {IDS: [2, 30, 58], "use_aux_hidden_state": True},
    }
    at = "layers.0."
    tensors = {
        "embed_tokens.weight": tensor(163840, 7168),
        "fc.weight": tensor(7168, 3 * 7168),
        "norm.weight": tensor(7168),
        "lm_head.weight": tensor(163840, 7168),
        f"{at}self_attn.q_a_proj.weight": tensor(1536, 14336),
        f"{at}self_attn.q_a_layernorm.weight": tensor(1536),
        f"{at}self_attn.q_b_proj.weight": tensor(64 * 192, 1536),
        f"{at}self_attn.kv_a_proj_with_mqa.weight": tensor(512 + 64, 14336),
        f"{at}self_attn.kv_a_layernorm.weight": tensor(512),
        f"{at}self_attn.kv_b_proj.weight": tensor(64 * 256, 512),
        f"{at}self_attn.o_proj.weight": tensor(7168, 64 * 128),
        f"{at}mlp.gate_proj.weight": tensor(18432, 7168),
        f"{at}mlp.up_proj.weight": tensor(18432, 7168),
        f"{at}mlp.down_proj.weight": tensor(7168, 18432),
        f"{at}input_layernorm.weight": tensor(7168),
        f"{at}hidden_norm.weight": tensor(7168),
        f"{at}post_attention_layernorm.weight": tensor(7168),
    }
    return Files(config, tensors), KIMI_K25


def yuhuili_llama():
    shape = {"hidden": 4096, "inter": 14336, "heads": 32, "kv": 8, "vocab": 128256, "rows": 32000}
    config = sizes(
        **shape,
        bos_token_id=128000,
        max_position_embeddings=2048,
        rope_theta=500000.0,
        torch_dtype="float16",
    )
    return Files(config, llama_head(**shape, head_dim=128, dtype="F16")), LLAMA_8B


def specforge_qwen3_eagle31():
    shape = {"hidden": 2048, "inter": 12288, "heads": 32, "kv": 4, "vocab": 151936, "rows": 32000}
    config = sizes(
        **shape,
        head_dim=128,
        fc_norm=True,
        norm_output=True,
        max_position_embeddings=2048,
        rope_theta=1000000.0,
    )
    tensors = llama_head(**shape, head_dim=128)
    tensors |= {f"fc_norm.{place}.weight": ("BF16", (2048,), None) for place in range(3)}
    return Files(config, tensors), QWEN3_30B


def speculators_llama(**more):
    shape = {"hidden": 4096, "inter": 14336, "heads": 32, "kv": 8, "vocab": 128256, "rows": 32000}
    config = {
        "architectures": ["Eagle3Speculator"],
        "auto_map": {"": "eagle3.Eagle3SpeculatorConfig"},
        "draft_vocab_size": 32000,
        "norm_before_residual": False,
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 5}],
            "verifier": {
                "architectures": ["LlamaForCausalLM"],
                "name_or_path": "meta-llama/Meta-Llama-3.1-8B-Instruct",
            },
        },
        "speculators_model_type": "eagle3",
        "speculators_version": "0.9.0",
        "torch_dtype": "float32",
        "transformer_layer_config": {
            "head_dim": 128,
            "intermediate_size": 14336,
            "max_position_embeddings": 131072,
            "model_type": "llama",
            "num_hidden_layers": 1,
            "num_key_value_heads": 8,
            "rope_theta": 500000.0,
            "vocab_size": 128256,
        },
        **more,
    }
    head = llama_head(**shape, head_dim=128, layer="layers.0", dtype="F32", embed=True)
    return Files(config, head), LLAMA_8B


PUBLIC = {
    "lmsys": lmsys_qwen3,
    "AQ-MedAI": aq_medai_kimi_k2,
    "lightseek": lightseek_kimi_k25,
    "lightseek-mla": lightseek_kimi_mla,
    "yuhuili": yuhuili_llama,
    "SpecForge": specforge_qwen3_eagle31,
    "speculators": speculators_llama,
}
