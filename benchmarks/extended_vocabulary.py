"""What an extended vocabulary is worth: pieces a word, and masked loss after N steps on a domain.

    python benchmarks/extended_vocabulary.py BASE 'DOMAIN' --steps 500 --add 2000

BASE is a run or folder of a model of general text, DOMAIN text of another kind. Continued
pre-training with the vocabulary as it is, with the extended one, and a new model with a vocabulary
of its own of the extended one's size, all at the same steps. Losses of different vocabularies are
compared in nats a word: the loss of a piece times the pieces of a word.
"""

import argparse
from pathlib import Path

import bertlab
from bertlab.extend import Corpus, read_documents, read_results


def main() -> None:
    """Print a table of the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base")
    parser.add_argument("domain", nargs="+")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--add", type=int, default=2000)
    parser.add_argument("--output", default="extended-vocabulary")
    given = parser.parse_args()
    folder = Path(given.output)
    corpus = Corpus(given.domain)
    extended = folder / "extended"
    if not extended.exists():
        report = bertlab.extend_vocabulary(given.base, extended, corpus=corpus, add=given.add)
        print(f"{len(report.pieces)} pieces: {', '.join(report.pieces[:12])}, …", flush=True)
    kept = folder / "kept"
    if not kept.exists():
        bertlab.export_model(given.base, kept)
    size = bertlab.load_tokenizer(extended).vocab_size
    arms = {
        "not extended": {"model.init_from": str(kept), "data.tokenizer": str(kept)},
        "extended": {"model.init_from": str(extended), "data.tokenizer": str(extended)},
        "anew": {"data.vocab_size": size},
    }
    print("| arm | tokens | pieces a word | loss before | nats a word | loss after | nats a word |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, start in arms.items():
        losses = []
        for steps in (1, given.steps):
            run = folder / f"{name.replace(' ', '-')}-{steps}"
            if not (run / "results.json").exists():
                rate = {"model.optimizer.learning_rate": 1e-9} if steps == 1 else {}
                bertlab.fit(
                    ["configs/quickstart.yaml", "configs/recipes/modern.yaml"],
                    {
                        "model.encoder.type_vocab_size": 0,
                        "model.objectives": ["mlm"],
                        "data.corpus": given.domain,
                        "trainer.max_steps": steps,
                        "trainer.val_check_interval": steps,
                        "run_dir": str(run),
                        **start,
                        **rate,
                    },
                )
            losses.append(read_results(run)["mlm/loss"])
        tokenizer = bertlab.load(run).tokenizer
        rate = pieces_a_word(tokenizer, corpus)
        figures = " | ".join(f"{loss:.3f} | {loss * rate:.3f}" for loss in losses)
        print(f"| {name} | {tokenizer.vocab_size:,} | {rate:.3f} | {figures} |", flush=True)


def pieces_a_word(tokenizer: bertlab.Tokenizer, corpus: Corpus) -> float:
    """Return the mean number of pieces of a word between spaces."""
    pieces = words = 0
    for document in read_documents(corpus):
        pieces += int(tokenizer.encode_texts(document.sentences)[1].sum())
        words += sum(len(sentence.split()) for sentence in document.sentences)
    return pieces / words


if __name__ == "__main__":
    main()
