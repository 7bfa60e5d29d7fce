"""Which of the target's layers SGLang feeds to an EAGLE-3 draft.

SGLang 0.5.23 counts hidden states by the layer they go into: state 0 is the embedding's output,
state i the output of layer i - 1. What the config's ids become depends on the target's class
(`set_eagle3_layers_to_capture` of each model). States are taken in the order of the layers,
whatever the order of the ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Shift = Literal["plus-one", "plus-one-from-1", "plus-one-unless-last", "plus-one-always"]
"""plus-one: ids are the numbers of layers whose output is taken. plus-one-from-1: so only when the
first is 1, else they are states' numbers. plus-one-unless-last: so unless the largest is the
number of layers. plus-one-always: the default ids are shifted as well."""

SHIFTS: Final[dict[str, Shift]] = {
    **dict.fromkeys(
        (
            *("LlamaForCausalLM", "Llama4ForCausalLM", "Llama4ForConditionalGeneration"),
            *("MistralForCausalLM", "Ministral3ForCausalLM", "Phi3ForCausalLM"),
            *("InternLM3ForCausalLM", "TeleFLMForCausalLM", "IQuestCoderForCausalLM"),
            *("Qwen2ForCausalLM", "Qwen2MoeForCausalLM", "Qwen2_5_VLForConditionalGeneration"),
            *("Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "Qwen3NextForCausalLM"),
            *("Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration"),
            *("Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM"),
            *("Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"),
            *("Qwen4ExpForConditionalGeneration", "InternS1ProForConditionalGeneration"),
            *("InternS2PreviewForConditionalGeneration", "MellumForCausalLM"),
            *("InternS2MobiusForConditionalGeneration", "Cosmos3ForConditionalGeneration"),
            *("Glm4MoeForCausalLM", "Glm5NextForConditionalGeneration"),
            *("BailingMoEForCausalLM", "BailingMoeForCausalLM", "BailingMoeV2ForCausalLM"),
            *("SarvamMoEForCausalLM", "LongcatFlashForCausalLM", "ApertusForCausalLM"),
            *("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"),
            *("Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"),
            *("Gemma4UnifiedForConditionalGeneration", "MiniMaxM2ForCausalLM"),
            *("MiniMaxM3SparseForCausalLM", "ExaoneMoEForCausalLM", "ExaoneMoeForCausalLM"),
        ),
        "plus-one",
    ),
    **dict.fromkeys(
        (
            *("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM"),
            *("GlmMoeDsaForCausalLM", "Glm4MoeLiteForCausalLM", "MistralLarge3ForCausalLM"),
            "KimiK25ForConditionalGeneration",
        ),
        "plus-one-from-1",
    ),
    "GptOssForCausalLM": "plus-one-unless-last",
    "MiniMaxM3SparseForConditionalGeneration": "plus-one-always",
}
"""The target classes that can be captured from, by `architectures[0]`."""

# Classes of which it is certain that they have no hook for it.
REFUSING: Final = frozenset({"MixtralForCausalLM", "Gemma2ForCausalLM", "Grok1ForCausalLM"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """The hidden states a draft is fed at its first step.

    Attributes:
        asked: The ids from the config; None: SGLang's default.
        states: The states' numbers in the order they are concatenated; 0 is the embedding.
        lost: States that are asked for and that this class never captures.
        shift: What the class does with ids.
        is_shifted: Whether it was done to these.
    """

    asked: tuple[int, ...] | None
    states: tuple[int, ...]
    lost: tuple[int, ...]
    shift: Shift
    is_shifted: bool

    @property
    def text(self) -> str:
        """`the outputs of layers 1, 3, 4`."""
        outputs = [str(state - 1) for state in self.states if state > 0]
        layers = f"the output{'s' * (len(outputs) != 1)} of layer{'s' * (len(outputs) != 1)} "
        parts = ["the embedding's output"] if 0 in self.states else []
        parts += [layers + ", ".join(outputs)] if outputs else []
        return " and ".join(parts) or "nothing"


def default_states(layers: int) -> tuple[int, int, int]:
    """The states that SGLang takes when the config names none."""
    return (2, layers // 2, layers - 3)


def trainer_default(layers: int) -> tuple[int, int, int]:
    """The same as layers' numbers: what SpecForge takes when it is told none."""
    return (1, layers // 2 - 1, layers - 4)


def captured_states(
    ids: tuple[int, ...] | None, *, architecture: str | None, layers: int
) -> Captured | None:
    """The states that a target is made to give.

    Args:
        ids: `eagle_config.eagle_aux_hidden_state_layer_ids`.
        architecture: The target's class.
        layers: Its number of layers.

    Returns:
        None where what the class does is not known.
    """
    shift = SHIFTS.get(architecture or "")
    if shift is None:
        return None
    is_shifted = _is_shifted(ids, shift, layers)
    wanted = default_states(layers) if ids is None else ids
    wanted = tuple(state + is_shifted for state in wanted)
    end = layers + 1 if shift == "plus-one-unless-last" else layers
    states = tuple(sorted({state for state in wanted if 0 <= state < end}))
    lost = tuple(state for state in wanted if not 0 <= state < end)
    return Captured(asked=ids, states=states, lost=lost, shift=shift, is_shifted=is_shifted)


def ids_for(states: tuple[int, ...], *, shift: Shift, layers: int) -> tuple[int, ...] | None:
    """The ids with which a class captures just these states; None: no ids do.

    Args:
        states: Ascending states' numbers.
        shift: What the class does with ids.
        layers: Its number of layers.
    """
    orders = (states, (*states[1:], *states[:1]))  # the order decides nothing but the shift
    for order in orders:
        for ids in (order, tuple(state - 1 for state in order)):
            shifted = tuple(state + _is_shifted(ids, shift, layers) for state in ids)
            if sorted(shifted) == list(states):
                return ids
    return None


def _is_shifted(ids: tuple[int, ...] | None, shift: Shift, layers: int) -> bool:
    if shift == "plus-one-always":
        return True
    if ids is None:
        return False
    if shift == "plus-one-from-1":
        return ids[0] == 1
    return shift == "plus-one" or max(ids) != layers
