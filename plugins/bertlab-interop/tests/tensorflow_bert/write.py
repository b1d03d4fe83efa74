"""Writes this folder's checkpoint with TensorFlow, which no test needs: pip install tensorflow-cpu.

The folder was written by TensorFlow 2.21.0:

    python plugins/bertlab-interop/tests/tensorflow_bert/write.py
"""

import json
from pathlib import Path

import numpy as np
import tensorflow.compat.v1 as tf

HERE = Path(__file__).parent
H, LAYERS, WIDE, V, POSITIONS = 8, 2, 16, 16, 12  # two heads


def dense(name: str, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}/kernel": (rows, columns), f"{name}/bias": (columns,)}


def norm(name: str) -> dict[str, tuple[int, ...]]:
    return {f"{name}/LayerNorm/gamma": (H,), f"{name}/LayerNorm/beta": (H,)}


shapes = {
    "bert/embeddings/word_embeddings": (V, H),
    "bert/embeddings/position_embeddings": (POSITIONS, H),
    "bert/embeddings/token_type_embeddings": (2, H),
    **norm("bert/embeddings"),
}
for number in range(LAYERS):
    layer = f"bert/encoder/layer_{number}"
    for kind in ("query", "key", "value"):
        shapes |= dense(f"{layer}/attention/self/{kind}", H, H)
    shapes |= dense(f"{layer}/attention/output/dense", H, H) | norm(f"{layer}/attention/output")
    shapes |= dense(f"{layer}/intermediate/dense", H, WIDE)
    shapes |= dense(f"{layer}/output/dense", WIDE, H) | norm(f"{layer}/output")
shapes |= dense("bert/pooler/dense", H, H) | dense("cls/predictions/transform/dense", H, H)
shapes |= norm("cls/predictions/transform") | {
    "cls/predictions/output_bias": (V,),
    "cls/seq_relationship/output_weights": (2, H),
    "cls/seq_relationship/output_bias": (2,),
}
tf.disable_eager_execution()
variables = [tf.get_variable("global_step", initializer=np.int64(1_000_000))]
for number, (name, shape) in enumerate(shapes.items()):
    # as the test expects them: tensor 1, element 2 -> ((31 + 2) % 97 - 48) / 64
    values = (((31 * number + np.arange(np.prod(shape))) % 97 - 48) / 64).astype("float32")
    variables.append(tf.get_variable(name, initializer=values.reshape(shape)))
    variables.append(tf.get_variable(f"{name}/adam_m", initializer=np.zeros(1, "float32")))
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    tf.train.Saver(variables).save(session, str(HERE / "bert_model.ckpt"), write_meta_graph=False)
(HERE / "checkpoint").unlink()
config = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": H,
    "initializer_range": 0.02,
    "intermediate_size": WIDE,
    "max_position_embeddings": POSITIONS,
    "num_attention_heads": 2,
    "num_hidden_layers": LAYERS,
    "type_vocab_size": 2,
    "vocab_size": V,
}
(HERE / "bert_config.json").write_text(json.dumps(config, indent=2) + "\n")
tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{n}" for n in range(V - 5))]
(HERE / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
