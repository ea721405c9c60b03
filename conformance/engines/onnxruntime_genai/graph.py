"""A Llama model as an ONNX graph with a key-value cache, as ONNX Runtime GenAI wants it: float32, plain operators.

Without layers the graph is one lookup: logits from the last token, an exact Markov model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from conformance.engines.llama_folder import Array, LlamaFolder

PAST, PRESENT = "past_key_values.%d.%s", "present.%d.%s"
"""Names of a layer's cache, before and after a step; the second part is "key" or "value"."""
FUSED = "com.microsoft"
"""The domain of ONNX Runtime's own operators."""


def write_graph(model: LlamaFolder, file: Path) -> None:
    """Write the model's graph to a file."""
    graph = _Graph(model)
    hidden = graph.add("Gather", [graph.constant("embed", model.tensor("model.embed_tokens.weight")), "input_ids"], axis=0)
    for layer in range(model.layers):
        hidden = graph.layer(layer, hidden)
    normed = graph.normed(hidden, "model.norm.weight")
    graph.logits(graph.add("MatMul", [normed, graph.matrix("lm_head.weight")]))
    onnx.save(graph.finished(), file)


class _Graph:
    """Nodes and weights so far; every method adds some and gives the name of what they compute."""

    def __init__(self, model: LlamaFolder) -> None:
        self.model = model
        self.nodes: list[Any] = []
        self.weights: dict[str, Any] = {}
        if model.layers:
            self._lengths()

    def add(self, operator: str, inputs: list[str], output: str | list[str] = "", **attributes: Any) -> str:
        """A node; the name of its (first) output."""
        outputs = output if isinstance(output, list) else [output or f"{operator}.{len(self.nodes)}"]
        self.nodes.append(helper.make_node(operator, inputs, outputs, name=f"node.{len(self.nodes)}", **attributes))
        return outputs[0]

    def constant(self, name: str, value: Array) -> str:
        """A weight of the graph."""
        self.weights[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def matrix(self, name: str) -> str:
        """A linear map's weight, to be multiplied from the right."""
        return self.constant(name, self.model.tensor(name).T)

    def normed(self, hidden: str, weight: str) -> str:
        """Root-mean-square normalisation."""
        scale = self.constant(weight, self.model.tensor(weight))
        return self.add("SimplifiedLayerNormalization", [hidden, scale], axis=-1, epsilon=self.model.epsilon, stash_type=1)

    def layer(self, number: int, hidden: str) -> str:
        """One layer: attention, then the gated network, each beside a shortcut."""
        name = f"model.layers.{number}"
        normed = self.normed(hidden, f"{name}.input_layernorm.weight")
        hidden = self.add("Add", [hidden, self._attention(number, normed)])
        normed = self.normed(hidden, f"{name}.post_attention_layernorm.weight")
        gate = self.add("MatMul", [normed, self.matrix(f"{name}.mlp.gate_proj.weight")])
        gate = self.add("Mul", [gate, self.add("Sigmoid", [gate])])
        inner = self.add("Mul", [gate, self.add("MatMul", [normed, self.matrix(f"{name}.mlp.up_proj.weight")])])
        return self.add("Add", [hidden, self.add("MatMul", [inner, self.matrix(f"{name}.mlp.down_proj.weight")])])

    def logits(self, of_tokens: str) -> None:
        """The output: logits of all tokens, and of one id more that is as good as impossible."""
        self.weights["behind"] = numpy_helper.from_array(np.array([0, 0, 0, 0, 0, 1], dtype=np.int64), "behind")
        self.add("Pad", [of_tokens, "behind", self.constant("impossible", np.array(-1e9, dtype=np.float32))], "logits")

    def _attention(self, number: int, normed: str) -> str:
        model, name = self.model, f"model.layers.{number}.self_attn"
        q, k, v = (self.add("MatMul", [normed, self.matrix(f"{name}.{part}_proj.weight")]) for part in "qkv")
        past, present = ([some % (number, part) for part in ("key", "value")] for some in (PAST, PRESENT))
        mixed = self.add(
            "GroupQueryAttention",
            [q, k, v, *past, "last_position", "total_length", "cosines", "sines"],
            [f"mixed.{number}", *present],
            domain=FUSED,
            num_heads=model.heads,
            kv_num_heads=model.key_heads,
            do_rotary=1,
            rotary_interleaved=0,
        )
        return self.add("MatMul", [mixed, self.matrix(f"{name}.o_proj.weight")])

    def _lengths(self) -> None:
        """What the attention wants to know of lengths, from the mask; and the rotations."""
        cosines, sines = self.model.rotations()
        self.constant("cosines", cosines)
        self.constant("sines", sines)
        self.weights["one"] = numpy_helper.from_array(np.array([1], dtype=np.int64), "one")
        self.weights["second"] = numpy_helper.from_array(np.array(1, dtype=np.int64), "second")
        length = self.add("ReduceSum", ["attention_mask", "one"], keepdims=0)
        last = self.add("Sub", [length, "one"])
        self.add("Cast", [last], "last_position", to=TensorProto.INT32)
        total = self.add("Gather", [self.add("Shape", ["attention_mask"]), "second"], axis=0)
        self.add("Cast", [total], "total_length", to=TensorProto.INT32)

    def finished(self) -> Any:
        """The whole model."""
        model = self.model
        kinds = {"input_ids": "sequence", "attention_mask": "total_sequence"}
        inputs = [helper.make_tensor_value_info(n, TensorProto.INT64, ["batch", length]) for n, length in kinds.items()]
        outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "sequence", model.vocabulary + 1])]
        for names, values, length in ((PAST, inputs, "past_sequence"), (PRESENT, outputs, "total_sequence")):
            shape = ["batch", model.key_heads, length, model.head_size]
            values += [
                helper.make_tensor_value_info(names % (layer, part), TensorProto.FLOAT, shape)
                for layer in range(model.layers)
                for part in ("key", "value")
            ]
        graph = helper.make_graph(self.nodes, "llama", inputs, outputs, list(self.weights.values()))
        operators = [helper.make_opsetid("", 17), helper.make_opsetid(FUSED, 1)]
        return helper.make_model(graph, opset_imports=operators, ir_version=10)
