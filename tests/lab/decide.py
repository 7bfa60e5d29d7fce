"""Run by the lab's Python: SGLang's adaptive controller on made-up batches, for record_scenes.py.

Prints a line of JSON: for each case the configuration, the captured batch sizes, the first steps,
the batches (accepted drafts of each request) and, for each batch, the steps it was run with and
those after it.
"""

import json
import random
import tempfile

from sglang.srt.speculative.adaptive_spec_params import (
    DEFAULT_ADAPTIVE_CONFIG,
    AdaptiveSpeculativeParams,
)

CONFIGS = {
    "own": (DEFAULT_ADAPTIVE_CONFIG, [1, 2, 4, 8, 16, 32, 64]),
    "shared": (
        {
            "ema_alpha": 0.5,
            "update_interval": 2,
            "warmup_batches": 1,
            "1": {"candidate_steps": [1, 2, 4, 8]},
            "3": {"candidate_steps": [0, 2, 5], "up_hysteresis": -0.6, "down_hysteresis": 0.4},
        },
        None,
    ),
    "capped": (
        {
            "2": {
                "candidate_steps": [0, 1, 2, 3, 6],
                "ceiling_coeff": 1.5,
                "update_interval": 1,
                "warmup_batches": 0,
            }
        },
        [4, 8],
    ),
}


def main() -> None:
    cases = []
    for name, (config, graph_batch_sizes) in CONFIGS.items():
        for first_steps in (1, 3):
            rng = random.Random(f"{name} {first_steps}")
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                json.dump(config, file)
                file.flush()
                params = AdaptiveSpeculativeParams(first_steps, file.name)
            params.set_cuda_graph_bs(graph_batch_sizes)
            batches, decisions = [], []
            for at in range(240):
                batch = rng.choice([1, 1, 1, 2, 3, 8, 9, 40, 70])
                steps = params.get_steps_for_batch(batch)
                chance = 0.15 + 0.8 * ((at // 60) % 2)
                correct = [sum(rng.random() < chance for _ in range(steps)) for _ in range(batch)]
                after = params.on_verify_complete(correct, batch)
                batches.append(correct)
                decisions.append([steps, steps if after is None else after])
            cases.append(
                {
                    "config": config,
                    "graph_batch_sizes": graph_batch_sizes or [],
                    "first_steps": first_steps,
                    "batches": batches,
                    "decisions": decisions,
                }
            )
    print(json.dumps(cases))


if __name__ == "__main__":
    main()
